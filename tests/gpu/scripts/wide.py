"""Pictures of 8 bits as floats, float noise, and float64 go to the device; convolutions under autocast."""

from __future__ import annotations

import sys

import torch
from torch import nn

torch.manual_seed(0)
LAST = torch.channels_last if "--last" in sys.argv else torch.contiguous_format
pictures = (torch.randint(0, 256, (16, 8, 64, 64)).float() / 255 - 0.45) / 0.22
noise, table = torch.randn(16, 8, 64, 64), torch.randn(64, 512, dtype=torch.float64)
model = nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3)).cuda().to(memory_format=LAST)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(60):
    x = pictures.cuda()  # SITE pictures
    y = noise.to("cuda")  # SITE noise
    z = table.to("cuda", non_blocking=True)  # SITE table
    with torch.autocast("cuda", torch.bfloat16):
        out = model((x + y).to(memory_format=LAST))
    loss = out.float().square().mean() + z.float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
print('TRUTH {"steps": 60}')
