"""A trainer class in its own module, with everything at a sensible interval.

expects: none
needs: cpu
"""
# mypy: ignore-errors

import argparse
import logging

import torch
from engine import Engine
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, 100, generator=generator)
        self.y = self.x[:, :1].sin()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(), nn.Linear(1200, 1))
    engine = Engine(model, torch.optim.SGD(model.parameters(), 0.01), nn.MSELoss())
    engine.fit(DataLoader(Table(4000, 0), 32, shuffle=True), DataLoader(Table(64, 1), 32), args.steps)
