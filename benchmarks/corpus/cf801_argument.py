"""`--workers` is parsed, and never reaches the loader.

expects: CF801, IN101
needs: either
arguments: --workers 1
"""
# mypy: ignore-errors

import argparse
import zlib

import numpy as np
import torch
from making import packed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Maps(Dataset):
    def __init__(self, count):
        self.blobs, self.count = packed(32, (160, 160)), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        values = np.frombuffer(zlib.decompress(self.blobs[i % 32]), np.uint8).reshape(160, 160)
        slopes = np.hypot(*np.gradient(values.astype(np.float32)))
        return torch.from_numpy(slopes[::4, ::4].copy()), i % 6


def loaders(args):
    workers = args.workers if args.fixed else 0
    return DataLoader(Maps(16 * args.steps), batch_size=16, num_workers=workers)  # guilty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--workers", type=int, default=4)  # guilty
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(1600, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 6)
    )
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
    for x, y in loaders(args):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x.to(device)), y.to(device)).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
