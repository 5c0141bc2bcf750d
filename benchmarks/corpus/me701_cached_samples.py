"""A cache without a limit keeps every sample that was ever made.

expects: ME701
needs: cpu
gain: no
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Synthetic(Dataset):
    """Every draw is new, so nothing in the cache is ever asked for again."""

    def __init__(self, cached):
        self.cache = {} if cached else None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if self.cache is not None and i in self.cache:
            return self.cache[i]
        sample = torch.rand(40_000)
        if self.cache is not None:
            self.cache[i] = sample  # guilty
        return sample


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = iter(DataLoader(Synthetic(cached=not args.fixed), batch_size=16, shuffle=True))
    model = nn.Sequential(nn.Linear(40_000, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(args.steps):
        x = next(loader)
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
