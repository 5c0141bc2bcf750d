"""One sample in a hundred and twenty is far larger than the others, and its batch holds up all that follow.

expects: IN108
needs: cpu
"""
# mypy: ignore-errors

import argparse
import zlib

import numpy as np
import torch
from making import packed
from torch import nn
from torch.utils.data import DataLoader, Dataset

EVERY = 120


class Photos(Dataset):
    """Small photos, and now and then a scan of a thousand times the size."""

    def __init__(self, count, scans):
        self.small = packed(16, (96, 96))
        self.large = packed(2, (3200, 3200)) if scans else None
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.large is not None and i % EVERY == EVERY // 2:
            raw, side = self.large[i % 2], 3200
        else:
            raw, side = self.small[i % 16], 96
        image = np.frombuffer(zlib.decompress(raw), np.uint8).reshape(side, side).astype(np.float32)
        cell = side // 32
        return torch.from_numpy(image.reshape(32, cell, 32, cell).mean((1, 3)))[None], i % 3


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Photos(8 * args.steps, scans=not args.fixed)
    loader = DataLoader(dataset, 8, num_workers=1, prefetch_factor=2)  # guilty
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 24, 3, 2), nn.ReLU(), nn.Flatten())
    head = nn.Linear(24 * 14 * 14, 3)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.01)
    for x, y in loader:
        loss = nn.functional.cross_entropy(head(net(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=200)
    cli.add_argument("--fixed", action="store_true")
    main(cli.parse_args())
