"""A thread of the script's own fetches the batches ahead and hands them over in a queue."""

from __future__ import annotations

import queue
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=16)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ahead: queue.Queue[torch.Tensor | None] = queue.Queue(maxsize=4)


def fetch() -> None:
    for (x,) in loader:
        ahead.put(x)
    ahead.put(None)


threading.Thread(target=fetch, daemon=True).start()
truth = Truth()
while (x := ahead.get()) is not None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    truth.step(len(x))
truth.tell()
