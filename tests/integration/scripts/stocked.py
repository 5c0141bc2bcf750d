"""A loader that is slower than the training, and a first step so slow that batches lie ready afterwards."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.full((4,), float(i))


if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for step, x in enumerate(DataLoader(Slow(), 1, num_workers=1, prefetch_factor=16)):
        time.sleep(1.5 if step == 0 else 0.008)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
