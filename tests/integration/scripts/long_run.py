"""Many trivial steps; prints how much resident memory grew after the first third."""

from __future__ import annotations

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rss_bytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


steps = int(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
batch = torch.randn(4, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(batch.repeat(64, 1)), batch_size=None)
done = 0
early = 0
while done < steps:
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        done += 1
        if done == steps // 3:
            early = rss_bytes()
        if done == steps:
            break
print(f"GROWTH {rss_bytes() - early}", flush=True)
