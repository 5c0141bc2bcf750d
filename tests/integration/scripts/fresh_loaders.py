"""Loaders are made anew for every epoch, with an evaluation between two; argv[1] is the style of evaluation."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
rows = torch.randn(8 * 32, 512)
truth = Truth()
for _epoch in range(6):
    model.train()
    for (x,) in DataLoader(TensorDataset(rows), batch_size=32, shuffle=True):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth.step(len(x))
    with truth.planted():
        model.eval()
        with torch.no_grad() if sys.argv[1] == "no_grad" else contextlib.nullcontext():
            for (x,) in DataLoader(TensorDataset(rows.repeat(3, 1)), batch_size=64):
                model(x).square().mean().item()
truth.tell()
