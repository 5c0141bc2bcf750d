"""Gradient accumulation over four micro-batches, with clipping and a scheduler."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=4)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
truth = Truth()
for _epoch in range(2):
    gathered = 0
    for i, (x,) in enumerate(loader):
        (model(x).square().mean() / 4).backward()
        gathered += len(x)
        if (i + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            truth.step(gathered)
            gathered = 0
truth.tell()
