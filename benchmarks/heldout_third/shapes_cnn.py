"""A plain image classifier: shapes drawn in worker processes, a small residual CNN.

expects: none
needs: cpu
"""

# mypy: ignore-errors
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n, size=40):
        self.n, self.size = n, size
        self.yy, self.xx = np.mgrid[:size, :size].astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        label = i % 4
        cy, cx = rng.uniform(12, 28, 2)
        dy, dx = np.abs(self.yy - cy), np.abs(self.xx - cx)
        shape = [dy + dx < 9, dy**2 + dx**2 < 60, np.maximum(dy, dx) < 7, (dy < 3) | (dx < 3)][label]
        noise = rng.standard_normal((3, self.size, self.size), dtype=np.float32)
        return torch.from_numpy(shape.astype(np.float32) + 0.4 * noise), label


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(cin, cout, 3, stride, 1), nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1, stride)
        self.na, self.nb = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)

    def forward(self, x):
        y = self.nb(self.b(torch.relu(self.na(self.a(x)))))
        return torch.relu(y + self.skip(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Shapes(640), batch_size=16, shuffle=True, num_workers=args.workers, persistent_workers=True, drop_last=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        Block(16, 24, 2),
        Block(24, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.steps)
    step, correct, seen = 0, 0, 0
    while step < args.steps:
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
            step += 1
            if step == args.steps:
                break
        print(f"step {step}: loss {loss.item():.3f} accuracy {correct / seen:.3f}")


if __name__ == "__main__":
    main()
