"""An energy-based model of small glyphs, trained by contrast with samples from Langevin dynamics.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn

SIDE = 12


def make_glyphs(n, seed):
    """Crosses, bars and rings at random places, blurred by noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    x, y = rng.uniform(3, 8, (2, n, 1, 1))
    far = np.hypot(rows - y, columns - x)
    ring = np.abs(far - rng.uniform(2, 3, (n, 1, 1))) < 0.7
    cross = (np.abs(rows - y) < 0.8) | (np.abs(columns - x) < 0.8)
    bar = np.abs(rows - y) < 1.5
    kind = rng.integers(0, 3, (n, 1, 1))
    glyphs = np.where(kind == 0, ring, np.where(kind == 1, cross, bar)) * 2.0 - 1
    glyphs = glyphs.reshape(n, -1) + 0.1 * rng.normal(size=(n, SIDE * SIDE))
    return torch.tensor(glyphs, dtype=torch.float32)


class Energy(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(SIDE * SIDE, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


class Sampler:
    """Persistent chains, some of which start anew with every draw."""

    def __init__(self, chains, moves, fixed):
        self.pool = 2 * torch.rand(chains, SIDE * SIDE) - 1
        self.moves, self.fixed = moves, fixed

    def slope(self, energy, x):
        if self.fixed:
            return torch.autograd.grad(energy(x).sum(), x)[0]
        x.grad = None
        energy(x).sum().backward()  # guilty
        return x.grad

    def draw(self, energy, count, size=0.15, noise=0.01):
        rows = torch.randperm(len(self.pool))[:count]
        x = self.pool[rows]
        fresh = torch.rand(count) < 0.05
        x[fresh] = 2 * torch.rand(int(fresh.sum()), SIDE * SIDE) - 1
        for _ in range(self.moves):
            x.requires_grad_(True)
            slope = self.slope(energy, x)  # guilty
            with torch.no_grad():
                x = x - size * slope.clamp(-0.5, 0.5) + noise * torch.randn_like(x)
                x = x.clamp_(-1.2, 1.2)
        self.pool[rows] = x
        return x


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=130)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(6)
    glyphs = make_glyphs(6000, 9)
    energy = Energy()
    sampler = Sampler(1000, 20, args.fixed)
    optimizer = torch.optim.Adam(energy.parameters(), 1e-4, betas=(0.0, 0.999))
    for step in range(1, args.steps + 1):
        real = glyphs[torch.randint(len(glyphs), (args.batch_size,))]
        dream = sampler.draw(energy, args.batch_size)
        optimizer.zero_grad()
        low, high = energy(torch.cat([real, dream])).chunk(2)
        contrast = low.mean() - high.mean()
        loss = contrast + 0.05 * (low.square() + high.square()).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(energy.parameters(), 1.0)
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} contrast {contrast.item():.4f} energy {low.mean().item():.4f}")


if __name__ == "__main__":
    main()
