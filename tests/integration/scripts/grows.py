"""Work beside the model takes longer with every step of an epoch (argv[1] "epoch"), or as long in each ("same")."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES, BATCH = 4, 70, 16
MOST_S = 0.03


def summarise(so_far: int) -> None:
    part = so_far / BATCHES if sys.argv[1] == "epoch" else 0.5
    until = time.thread_time() + MOST_S * part
    while time.thread_time() < until:
        sum(range(200))  # grows


torch.set_num_threads(1)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(BATCHES * BATCH, 32)), BATCH)
model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(10)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(EPOCHS):
    seen = []
    for (batch,) in loader:
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        summarise(len(seen))
