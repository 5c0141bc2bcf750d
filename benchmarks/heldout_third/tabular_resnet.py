"""A residual MLP on tabular data, with a warm-up and restarts of the learning rate.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


class TabularNet(nn.Module):
    def __init__(self, features, dim=192, depth=3):
        super().__init__()
        self.first, self.last = nn.Linear(features, dim), nn.Linear(dim, 1)
        self.blocks = nn.Sequential(*(Residual(dim) for _ in range(depth)))

    def forward(self, x):
        return self.last(self.blocks(self.first(x))).squeeze(-1)


class Schedule:
    """The learning rate's factor at a step: warm-up, then cosine periods that grow, each lower than the one before."""

    warm, first, grow, drop, fine = 300, 400, 1.0005, 0.9997, 60

    def __init__(self, fixed):
        self.fixed = fixed
        self.mark, self.level, self.period, self.phase = 0, 1.0, float(self.first), 0.0

    def advance(self, level, period, phase):
        for _ in range(self.fine):  # guilty
            phase += 1 / self.fine / period  # guilty
            period *= self.grow ** (1 / self.fine)  # guilty
            level *= self.drop ** (1 / self.fine)  # guilty
        return level, period, phase

    def __call__(self, step):
        if self.fixed:
            while self.mark < step:
                self.level, self.period, self.phase = self.advance(self.level, self.period, self.phase)
                self.mark += 1
            level, phase = self.level, self.phase
        else:
            level, period, phase = 1.0, float(self.first), 0.0
            for _ in range(step):  # guilty
                level, period, phase = self.advance(level, period, phase)  # guilty
        return level * (0.55 + 0.45 * math.cos(math.pi * (phase % 1.0))) * min(1.0, (step + 1) / self.warm)


def table(n=6000, features=60):
    g = torch.Generator().manual_seed(90)
    x = torch.randn(n, features, generator=g)
    y = (x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + x[:, 3:9].relu().sum(1)) / 2
    return TensorDataset(x, y + 0.1 * torch.randn(n, generator=g))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(table(), batch_size=128, shuffle=True, drop_last=True)
    model = TabularNet(60)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = LambdaLR(optimizer, Schedule(args.fixed))  # guilty
    step = 0
    while step < args.steps:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()  # guilty
            step += 1
            if step % 100 == 0:
                print(f"{step} {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}")
            if step >= args.steps:
                break
