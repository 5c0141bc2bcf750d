"""No DataLoader at all: batches are slices of a tensor."""

from __future__ import annotations

import torch
from torch import nn
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
xs, ys = torch.randn(64, 1, 12, 12), torch.randint(0, 3, (64,))
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
truth = Truth()
for _epoch in range(4):
    order = torch.randperm(len(xs))
    for start in range(0, len(xs), 16):
        chosen = order[start : start + 16]
        loss = nn.functional.cross_entropy(model(xs[chosen]), ys[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth.step(len(chosen))
truth.tell()
