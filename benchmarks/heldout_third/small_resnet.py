"""A small residual network on noisy prototypes, with a table of its activations in the log.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse
from functools import partial

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Bottleneck(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c, c // 2, 1),
            nn.BatchNorm2d(c // 2),
            nn.ReLU(),
            nn.Conv2d(c // 2, c // 2, 3, padding=1),
            nn.BatchNorm2d(c // 2),
            nn.ReLU(),
            nn.Conv2d(c // 2, c, 1),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class SmallResNet(nn.Module):
    def __init__(self, classes=10, c=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, stride=2, padding=1), nn.ReLU())
        self.stages = nn.ModuleList(Bottleneck(c) for _ in range(3))
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


class ActivationStats:
    def __init__(self, every):
        self.every, self.calls, self.table = every, 0, {}

    def attach(self, model):
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU | Bottleneck):
                module.register_forward_hook(partial(self.hook, name))

    def hook(self, name, module, inputs, output):
        if not module.training or self.calls % self.every:
            return
        values = output.detach().numpy().ravel()
        low, mid, high = np.percentile(values, [1, 50, 99])  # guilty
        self.table[name] = (low, mid, high, float((values <= 0).mean()))  # guilty


def pictures(n, classes=10):
    g = torch.Generator().manual_seed(100)
    y = torch.randint(0, classes, (n,), generator=g)
    proto = torch.randn(classes, 3, 32, 32, generator=g)
    return TensorDataset(0.5 * proto[y] + torch.randn(n, 3, 32, 32, generator=g), y)


def train_one_epoch(model, loader, optimizer, stats, limit):
    model.train()
    for done, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)  # guilty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stats.calls += 1
        if done == limit:
            break
    return done, loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--fixed", action="store_true")
    args = p.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(pictures(640), batch_size=16, shuffle=True)
    model = SmallResNet()
    stats = ActivationStats(every=60 if args.fixed else 1)  # guilty
    stats.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    while step < args.steps:
        done, loss = train_one_epoch(model, loader, optimizer, stats, args.steps - step)
        step += done
        dead = sum(row[3] for row in stats.table.values()) / len(stats.table)
        print(f"step {step} loss {loss:.3f} zeros {dead:.2f}")


if __name__ == "__main__":
    main()
