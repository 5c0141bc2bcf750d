"""A loop through accelerate's wrappers of model, optimizer and loader."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(
    net := nn.Linear(8, 1),
    torch.optim.SGD(net.parameters(), lr=0.01),
    DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=8),
)
truth = Truth()
for _epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        truth.step(len(x))
truth.tell()
