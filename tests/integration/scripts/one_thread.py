"""A training on a CPU that computes on one thread; argv[1]: the width of its layers."""

from __future__ import annotations

import sys

import torch
from torch import nn

WIDTH = int(sys.argv[1])
torch.set_num_threads(1)  # one
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batch = torch.randn(64 if WIDTH < 100 else 512, WIDTH)
for _ in range(1500 if WIDTH < 100 else 120):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
