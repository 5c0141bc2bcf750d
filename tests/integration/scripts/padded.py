"""Convolutions and sequences in turn: padded rows that are computed, and padded rows that are cut first."""

from __future__ import annotations

import gc
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_num_threads(1)
CUT = "--cut" in sys.argv
rows = torch.zeros(240, 64, dtype=torch.long)
for i, row in enumerate(rows):
    row[: 8 + i % 24] = torch.randint(1, 500, (8 + i % 24,))
loader = DataLoader(rows, batch_size=8, shuffle=True)  # LOADER
embedding, convolution, head = nn.Embedding(500, 512), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(512, 512)
optimizer = torch.optim.SGD([*embedding.parameters(), *convolution.parameters(), *head.parameters()], lr=0.1)
for batch in loader:
    ids = batch[:, :32] if CUT else batch
    hidden = torch.tanh(embedding(ids))
    pictures = convolution(torch.ones(2, 8, 16, 16))
    loss = head(hidden).square().mean() + pictures.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
gc.freeze()  # see truth.py
