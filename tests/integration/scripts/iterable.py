"""An IterableDataset: batched by the loader in one epoch, handing out whole batches in the next."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from truth import Truth


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        self.count, self.shape = count, shape

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.count):
            yield torch.randn(self.shape)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
truth = Truth()
for loader in (DataLoader(Stream(45, (8,)), batch_size=6), DataLoader(Stream(9, (10, 8)), batch_size=None)):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        truth.step(len(x))
truth.tell()
