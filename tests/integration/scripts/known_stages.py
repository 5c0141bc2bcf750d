"""Stages that take a known time, forward and backward; one of them is called twice a step. On a GPU if there is one.

On a CPU that others use too a sleep is longer than asked for: there the truth is what was measured.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
PER_MS = 0.0
if device == "cuda":
    torch.cuda._sleep(10_000_000)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    torch.cuda.synchronize()
    PER_MS = 50_000_000 / begin.elapsed_time(end)


took_ms: dict[float, float] = defaultdict(float)


def work(ms: float) -> None:
    if device == "cuda":
        torch.cuda._sleep(int(PER_MS * ms))
        took_ms[ms] += ms
    else:
        begun = time.perf_counter()
        time.sleep(ms * 1e-3)
        took_ms[ms] += (time.perf_counter() - begun) * 1e3


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


class Slow(nn.Module):
    def __init__(self, forward_ms: float, backward_ms: float) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.ms = forward_ms, backward_ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Work.apply(self.layer(x), *self.ms)  # type: ignore[no-untyped-call]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = Slow(4, 6), Slow(3, 5), Slow(2, 2.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.twice(self.first(x))
        # Between the stages, of no stage.
        x = Work.apply(x, 3.5, 4.5)  # type: ignore[no-untyped-call]
        return self.last(self.twice(x))


model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(8, 16, device=device)
for _ in range(80):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
planted = {"first": (4, 6), "twice": (3, 5), "last": (2, 2.5)}
truth = {name: [took_ms[ms] / 80 for ms in both] for name, both in planted.items()}
print("TRUTH " + json.dumps({"steps": 80, "stages": truth}))
