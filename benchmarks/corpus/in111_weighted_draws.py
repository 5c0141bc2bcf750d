"""A sampler that draws every index from all weights anew.

expects: IN111
needs: either
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Balanced(Sampler):
    def __init__(self, weights, count, at_once):
        self.chances = weights / weights.sum()
        self.count, self.at_once = count, at_once
        self.source = np.random.default_rng(0)

    def __len__(self):
        return self.count

    def __iter__(self):
        if self.at_once:
            yield from self.source.choice(len(self.chances), self.count, p=self.chances).tolist()
            return
        for _ in range(self.count):
            yield int(self.source.choice(len(self.chances), p=self.chances))  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = 60_000
    data = TensorDataset(torch.randn(rows, 32), torch.randint(0, 12, (rows,)))
    sampler = Balanced(1.0 + np.arange(rows) % 12, 32 * args.steps, args.fixed)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)  # guilty
    model = nn.Sequential(nn.Linear(32, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 12)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
