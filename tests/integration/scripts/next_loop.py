"""`while True: next(it)`, with the iterator made anew when it runs out."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=8)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
truth = Truth()
it = iter(loader)
while True:
    try:
        (x,) = next(it)
    except StopIteration:
        it = iter(loader)
        (x,) = next(it)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    truth.step(len(x))
    if len(truth.ends_ns) == 23:
        break
truth.tell()
