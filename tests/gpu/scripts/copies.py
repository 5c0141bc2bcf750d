"""Two copies to the device a step: pinned and asynchronous on one line, pageable and blocking on another."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(64, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(50 * 16, 64)), batch_size=16, pin_memory=True)
weights = torch.ones(16, 4)
for (x,) in loader:
    x = x.to("cuda", non_blocking=True)  # SITE pinned
    w = weights.cuda()  # SITE pageable
    loss = (model(x) * w).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print('TRUTH {"steps": 50}')
