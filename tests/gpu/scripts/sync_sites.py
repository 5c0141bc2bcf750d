"""One synchronisation of each kind a step, each on a line of its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(64, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def metrics(loss: torch.Tensor, out: torch.Tensor) -> None:
    loss.item()  # SITE item
    out.cpu()  # SITE cpu
    out.tolist()  # SITE tolist
    bool(loss > 0)  # SITE bool
    int(loss)  # SITE int
    float(loss)  # SITE float
    torch.cuda.synchronize()  # SITE synchronize


for (x,) in DataLoader(TensorDataset(torch.randn(50 * 8, 64)), batch_size=8):
    out = model(x.cuda())
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metrics(loss.detach(), out.detach())
print('TRUTH {"steps": 50}')
