"""Device work of known length in forward, backward and optimizer; `host` as argv[1]: the host is slow instead."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FORWARD_MS, BACKWARD_MS, OPTIMIZER_MS = (0.0, 0.0, 0.0) if "host" in sys.argv else (6.0, 9.0, 3.0)
torch.cuda._sleep(10_000_000)
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda.synchronize()
begin.record()
torch.cuda._sleep(50_000_000)
end.record()
torch.cuda.synchronize()
per_ms = 50_000_000 / begin.elapsed_time(end)


def work(ms: float) -> None:
    if ms:
        torch.cuda._sleep(int(per_ms * ms))


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        work(FORWARD_MS)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        work(BACKWARD_MS)
        return grad.clone()


class Slow(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        work(OPTIMIZER_MS)


model = nn.Linear(64, 64).cuda()
optimizer = Slow(model.parameters(), lr=1e-3)
for (x,) in DataLoader(TensorDataset(torch.randn(60 * 8, 64)), batch_size=8):
    loss = Work.apply(model(x.cuda())).square().mean()
    optimizer.zero_grad()
    if "host" in sys.argv:
        time.sleep(0.01)
    loss.backward()
    optimizer.step()
    if "host" in sys.argv:
        time.sleep(0.005)
torch.cuda.synchronize()
print("TRUTH " + json.dumps({"steps": 60, "forward": FORWARD_MS, "backward": BACKWARD_MS, "optimizer": OPTIMIZER_MS}))
