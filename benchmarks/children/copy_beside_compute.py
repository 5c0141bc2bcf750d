"""Batches of 39 MB for a network that computes longer than they take to copy; the loader keeps up.

`--fixed` is the ceiling: the same steps on batches that lie on the device already.
"""

# mypy: ignore-errors

import itertools
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 400


class Batches(Dataset):
    """Ready-made batches: what remains to be fed is the copy to shared memory, to pinned memory and to the device."""

    def __init__(self):
        self.images = torch.rand(64, 3, 224, 224)

    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return self.images, torch.full((64,), i % 10)


def block(inside, outside, stride):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU())


if __name__ == "__main__":
    device = torch.device("cuda")
    torch.manual_seed(0)
    if "--fixed" in sys.argv:
        there = [tuple(part.to(device) for part in Batches()[i]) for i in range(8)]
        loader = itertools.islice(itertools.cycle(there), STEPS)
    else:
        loader = DataLoader(Batches(), batch_size=None, num_workers=8)
    layers = [block(3, 64, 2), block(64, 128, 2), *(block(128, 128, 1) for _ in range(8))]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
