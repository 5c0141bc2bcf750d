"""fp16 autocast with a GradScaler; one batch overflows, so the scaler does not call the optimizer."""

from __future__ import annotations

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(64, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
losses = []
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(30 * 8, 64)), batch_size=8)):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x.cuda()).float().square().mean()
    if step == 9:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item() if step != 9 else 0.0)
print("LOSSES " + json.dumps(losses))
print("TRUTH " + json.dumps({"steps": 30, "scale": scaler.get_scale()}))
