"""Clips of large frames, as floats, from a worker that keeps up.

expects: IN117
needs: cpu
"""
# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import flatout

EPOCH = 120


class Clips(Dataset):
    def __init__(self):
        self.frames = torch.rand(16, 2, 768, 1024)

    def __len__(self):
        return 4 * EPOCH

    def __getitem__(self, number):
        return self.frames[number % 16], number % 8


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
kind = flatout.DataLoader if args.fixed else DataLoader
loader = kind(Clips(), batch_size=4, num_workers=1, persistent_workers=True)  # guilty
model = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), *(nn.Linear(1536, 1536) for _ in range(4)), nn.Linear(1536, 8))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for _ in range(0, args.steps, EPOCH):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
