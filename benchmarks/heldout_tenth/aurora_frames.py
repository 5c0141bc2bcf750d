"""Learns to draw all-sky camera frames of aurora: small denoising diffusion model that predicts the clean frame.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, LEVELS = 24, 120


def frames(count, seed):
    """Curtains that wind over the sky, green below and violet above, with rays and stars."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : SIZE * 1j, 0 : 1 : SIZE * 1j]
    start, wave, phase = (rng.uniform(low, high, (count, 1, 1)) for low, high in ((0.3, 0.7), (2, 7), (0, 6.3)))
    below = start + 0.15 * np.sin(wave * x + phase) - y
    rays = 0.7 + 0.3 * np.sin(rng.uniform(15, 40, (count, 1, 1)) * x + 3 * phase)
    green = np.exp(-((below / 0.12) ** 2)) * rays
    violet = np.exp(-(((below - 0.2) / 0.15) ** 2)) * rays * rng.uniform(0.2, 0.9, (count, 1, 1))
    stars = (rng.random((count, SIZE, SIZE)) > 0.99) * 0.5
    sky = np.stack([0.6 * violet + stars, green + stars, 0.3 * green + violet + stars], 1)
    return torch.from_numpy((sky * 2 - 1).clip(-1, 1).astype(np.float32))


class ForwardProcess:
    """Turns clean frames into noise over LEVELS levels of variance beta."""

    def __init__(self, direct=False):
        self.direct = direct
        self.betas = torch.linspace(1e-4, 0.06, LEVELS)
        self.kept = torch.cumprod(1 - self.betas, 0)

    def __call__(self, clean, level):
        if self.direct:
            kept = self.kept[level].view(-1, 1, 1, 1)
            return kept.sqrt() * clean + (1 - kept).sqrt() * torch.randn_like(clean)
        state = clean
        for k, beta in enumerate(self.betas):  # guilty
            following = (1 - beta).sqrt() * state + beta.sqrt() * torch.randn_like(state)  # guilty
            state = torch.where((level >= k).view(-1, 1, 1, 1), following, state)  # guilty
        return state


class Block(nn.Module):
    def __init__(self, inputs, outputs, embedding):
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm, self.scale = nn.GroupNorm(4, outputs), nn.Linear(embedding, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, code):
        h = F.silu(self.norm(self.first(x)) + self.scale(code)[:, :, None, None])
        return self.skip(x) + self.second(h)


class Denoiser(nn.Module):
    def __init__(self, width=24, embedding=48):
        super().__init__()
        self.register_buffer("rates", torch.exp(-math.log(1000) * torch.arange(embedding // 2) / (embedding // 2)))
        self.code = nn.Sequential(nn.Linear(embedding, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.outer, self.inner = Block(width, width, embedding), Block(width, 2 * width, embedding)
        self.middle = Block(2 * width, 2 * width, embedding)
        self.back = Block(3 * width, width, embedding)

    def forward(self, x, level):
        angle = level[:, None] * self.rates
        code = self.code(torch.cat([angle.sin(), angle.cos()], 1))
        wide = self.outer(self.enter(x), code)
        deep = self.middle(self.inner(F.avg_pool2d(wide, 2), code), code)
        joined = torch.cat([wide, F.interpolate(deep, scale_factor=2.0)], 1)
        return self.leave(F.silu(self.back(joined, code)))


@torch.no_grad()
def draw(model, process, count, strides=12):
    """Deterministic sampling on a coarse grid of levels."""
    model.eval()
    x = torch.randn(count, 3, SIZE, SIZE)
    grid = torch.linspace(LEVELS - 1, 0, strides).long()
    for level, following in zip(grid, grid[1:]):
        clean = model(x, level.repeat(count)).clamp(-1, 1)
        noise = (x - process.kept[level].sqrt() * clean) / (1 - process.kept[level]).sqrt()
        x = process.kept[following].sqrt() * clean + (1 - process.kept[following]).sqrt() * noise
    model.train()
    return clean


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=230)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(21)

    sky = frames(2000, seed=4)
    model, process = Denoiser(), ForwardProcess(direct=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    smooth = None
    for step in range(1, args.steps + 1):
        clean = sky[torch.randint(0, len(sky), (args.batch,))]
        level = torch.randint(0, LEVELS, (args.batch,))
        loss = F.mse_loss(model(process(clean, level), level), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {smooth:.4f}")
    drawn = draw(model, process, 8)
    print(f"drawn frames: mean {drawn.mean():.3f} spread {drawn.std():.3f}, sky: {sky.mean():.3f} {sky.std():.3f}")


if __name__ == "__main__":
    main()
