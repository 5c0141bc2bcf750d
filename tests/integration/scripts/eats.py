"""Trains a few steps, then takes memory without end: `eats.py main` itself, `eats.py worker` in a loader's worker."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def eat():
    taken = []
    while True:
        taken.append(bytearray(16 << 20))


class Samples(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 80 and sys.argv[1] == "worker":
            eat()
        return torch.ones(4)


if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(Samples(), 4, num_workers=int(sys.argv[1] == "worker"))):
        if step == 20 and sys.argv[1] == "main":
            eat()
        model(batch).mean().backward()
        optimizer.step()
