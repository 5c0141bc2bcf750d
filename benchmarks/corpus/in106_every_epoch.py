"""A function that makes dataset and loader for every epoch.

expects: IN106, IN105
needs: either
"""
# mypy: ignore-errors

import argparse

import numpy as np
import torch
from making import array_files
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    def __init__(self, paths, epoch):
        self.paths, self.epoch = paths, epoch

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        array = np.load(self.paths[i])
        return np.roll(array, self.epoch, axis=0), np.int64(i % 5)


def make_loader(paths, epoch, workers):
    return DataLoader(Folder(paths, epoch), batch_size=16, num_workers=workers)  # guilty


def forever(paths):
    loader = DataLoader(Folder(paths, 0), batch_size=16, num_workers=1, persistent_workers=True)
    while True:
        yield from loader


def per_epoch(paths):
    epoch = 0
    while True:
        yield from make_loader(paths, epoch, 1)
        epoch += 1


def main(steps, fixed):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    paths = array_files("arrays", 96, (600,))
    model = nn.Sequential(nn.Linear(600, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 5))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    batches = forever(paths) if fixed else per_epoch(paths)
    for _, (x, y) in zip(range(steps), batches, strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    main(args.steps, args.fixed)
