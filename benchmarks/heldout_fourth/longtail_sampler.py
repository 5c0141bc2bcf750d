"""Long-tailed classification with a sampler that follows the running loss of each sample.

expects: IN111
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


def long_tail(n=40000, dim=96, classes=20):
    rng = np.random.default_rng(2)
    share = 0.7 ** np.arange(classes)
    y = rng.choice(classes, n, p=share / share.sum())
    centers = rng.normal(0, 1, (classes, dim))
    x = centers[y] + rng.normal(0, 1.5, (n, dim))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class HardnessSampler(Sampler):
    """Draws hard and rare samples more often. The scores are refreshed by the loop, once an epoch."""

    def __init__(self, labels, epoch_size, fast=False):
        self.labels = labels.numpy()
        counts = np.bincount(self.labels)
        self.rarity = 1.0 / counts[self.labels]
        self.hardness = np.ones(len(labels))
        self.epoch_size = epoch_size
        self.fast = fast
        self.rng = np.random.default_rng(9)

    def __len__(self):
        return self.epoch_size

    def __iter__(self):
        if self.fast:
            p = self.rarity * self.hardness
            yield from self.rng.choice(len(p), self.epoch_size, p=p / p.sum()).tolist()
            return
        for _ in range(self.epoch_size):
            p = self.rarity * self.hardness  # guilty
            p = p / p.sum()  # guilty
            yield int(self.rng.choice(len(p), p=p))  # guilty

    def update(self, index, loss):
        self.hardness[index] = 0.9 * self.hardness[index] + 0.1 * loss


class Indexed(TensorDataset):
    def __getitem__(self, i):
        return (*super().__getitem__(i), i)


class ResidualMLP(nn.Module):
    def __init__(self, dim, width, depth, classes):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


def run(args):
    torch.manual_seed(0)
    x, y = long_tail()
    sampler = HardnessSampler(y, epoch_size=args.batch * 25, fast=args.fixed)
    loader = DataLoader(Indexed(x, y), args.batch, sampler=sampler)
    model = ResidualMLP(x.shape[1], 192, 4, 20)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    step = 0
    while step < args.steps:
        seen = []
        for xb, yb, index in loader:
            losses = nn.functional.cross_entropy(model(xb), yb, reduction="none")
            opt.zero_grad()
            losses.mean().backward()
            opt.step()
            seen.append((index, losses.detach()))
            step += 1
            if step == args.steps:
                break
        for index, losses in seen:
            sampler.update(index.numpy(), losses.numpy())
        print(f"step {step} loss {losses.mean():.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=250)
    p.add_argument("--batch", type=int, default=96)
    p.add_argument("--fixed", action="store_true")
    run(p.parse_args())
