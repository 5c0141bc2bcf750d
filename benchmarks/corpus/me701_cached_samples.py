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
    """No index comes twice in so short a run, so nothing in the cache is ever asked for again."""

    def __init__(self, cached):
        self.cache = {} if cached else None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if self.cache is not None and i in self.cache:
            return self.cache[i]
        sample = torch.full((40_000,), 1.0 / (1 + i))
        if self.cache is not None:
            self.cache[i] = sample  # guilty
        return sample


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = iter(DataLoader(Synthetic(cached=not args.fixed), batch_size=16, shuffle=True))
    model = nn.Sequential(nn.Linear(40_000, 96), nn.ReLU(), nn.Linear(96, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(args.steps):
        x = next(loader)
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
