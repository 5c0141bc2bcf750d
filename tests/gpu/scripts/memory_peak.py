"""Prints the peak of device memory of an ordinary training."""

from __future__ import annotations

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for (x,) in DataLoader(TensorDataset(torch.randn(60 * 256, 1024)), batch_size=256):
    loss = model(x.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
facts = {"steps": 60, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
print("TRUTH " + json.dumps(facts))
