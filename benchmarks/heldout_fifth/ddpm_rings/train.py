"""A diffusion model of closed rings, with accumulated gradients, averaged weights and a rare look at samples.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusion import Diffusion
from model import Average, Denoiser


class Rings:
    """Sixteen points on a wobbling ring; the kind is the number of its waves."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.angle = torch.arange(16) * 2 * math.pi / 16

    def draw(self, n):
        kind = torch.randint(5, (n,), generator=self.gen)
        turn = 6.28 * torch.rand(n, 1, generator=self.gen)
        radius = 1 + 0.35 * torch.cos((kind[:, None] + 1) * self.angle + turn)
        radius = radius + 0.03 * torch.randn(n, 16, generator=self.gen)
        return torch.cat([radius * self.angle.cos(), radius * self.angle.sin()], 1), kind


def roughness(points):
    """How far the rings of the samples are from ring to ring, compared with real ones."""
    x, y = points.chunk(2, -1)
    radius = (x**2 + y**2).sqrt()
    return radius.mean().item(), (radius - radius.roll(1, -1)).abs().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=240)
    cli.add_argument("--micro", type=int, default=2)
    cli.add_argument("--look-every", type=int, default=100)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(0)
    rings, diffusion = Rings(1), Diffusion()
    model = Denoiser()
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(args.micro):
            x, kind = rings.draw(384)
            t = torch.randint(diffusion.steps, (len(x),))
            noise = torch.randn_like(x)
            loss = F.mse_loss(model(diffusion.noisy(x, t, noise), t, kind), noise) / args.micro
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        if step % args.look_every == 0:
            size, jump = roughness(diffusion.sample(average.model, 100, torch.arange(100) % 5))
            print(f"step {step} loss {total.item():.4f} radius {size:.3f} jump {jump:.3f}")


if __name__ == "__main__":
    main()
