"""Samples lie on a slow mount: every read waits, and hardly computes.

expects: IN104
needs: either
"""
# mypy: ignore-errors

import argparse
import os
import time

import numpy as np
import torch
from making import array_files
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Mounted(Dataset):
    """Arrays behind a mount whose every open takes a round trip."""

    def __init__(self, paths, round_trip_s):
        self.paths, self.round_trip_s = paths, round_trip_s

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(self.round_trip_s)
        return torch.from_numpy(np.load(self.paths[index])), index % 2


def train(loader, model, optimizer, device, most):
    done = 0
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            done += 1
            if done == most:
                return


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
workers = min(2, len(os.sched_getaffinity(0)))
dataset = Mounted(array_files("mount", 200, (3, 32, 32)), 0.0 if args.fixed else 0.03)
loader = DataLoader(dataset, 8, shuffle=True, num_workers=workers, persistent_workers=True)  # guilty
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
)
model(torch.zeros(1, 3, 32, 32))
model.to(device)
train(loader, model, torch.optim.SGD(model.parameters(), 0.01), device, args.steps)
