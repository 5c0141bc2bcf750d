"""A bit of everything in one loop, timed from outside: the phases must add up to the wall time."""

from __future__ import annotations

import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train = DataLoader(TensorDataset(torch.randn(60 * 32, 256), torch.randint(0, 10, (60 * 32,))), batch_size=32)
held_out = DataLoader(TensorDataset(torch.randn(256, 256), torch.randint(0, 10, (256,))), batch_size=64)
truth = Truth()
for _epoch in range(2):
    for step, (x, y) in enumerate(train):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if step % 3 == 0:
            time.sleep(0.005)
        optimizer.step()
        truth.step(len(x))
        loss.item()
        if step % 10 == 5:
            model.eval()
            with torch.no_grad():
                sum(float(nn.functional.cross_entropy(model(a), b)) for a, b in held_out)
            model.train()
        if step % 20 == 7:
            torch.save(model.state_dict(), "mixed.pt")
        if step % 30 == 9:
            gc.collect()
        if step % 4 == 1:
            time.sleep(0.004)
truth.tell()
