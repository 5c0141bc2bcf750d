"""Lines whose operations take a known time, forward and backward: a loop over samples, and one large operation."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, SAMPLES = 60, 8


def work(ms: float) -> None:
    time.sleep(ms * 1e-3)  # any of them


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_ms: float, backward_ms: float) -> torch.Tensor:
        work(forward_ms)
        ctx.backward_ms = backward_ms
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        work(ctx.backward_ms)
        return grads[0].clone(), None, None


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = Work.apply(self.layer(x), 2.0, 4.0)  # type: ignore[no-untyped-call]  # the large one
        rows = []
        for row in large:
            row = Work.apply(row, 0.5, 1.5)  # type: ignore[no-untyped-call]  # each sample
            rows.append(row * 2)  # its end
        return torch.stack(rows)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for (x,) in DataLoader(TensorDataset(torch.randn(STEPS * SAMPLES, 16)), batch_size=SAMPLES):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
