"""Steps with device work of known length, most of the time waiting for the host; argv[1] says what else is going on."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn

FORWARD_MS, BACKWARD_MS, HOST_MS, STEPS = 4.0, 6.0, 15.0, 120
mode = sys.argv[1]
device = torch.device("cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda._sleep(10_000_000)
torch.cuda.synchronize()
begin.record()
torch.cuda._sleep(50_000_000)
end.record()
torch.cuda.synchronize()
per_ms = 50_000_000 / begin.elapsed_time(end)


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(int(per_ms * FORWARD_MS))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(int(per_ms * BACKWARD_MS))
        return grad.clone()


def launch_us() -> float:
    """The quickest of several: what else the machine does is in the others."""
    x = torch.zeros(1, device=device)
    took = []
    for _ in range(15):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(1000):
            x.add_(1)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    return 1e3 * min(took)


model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
if mode == "compiled":
    model = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(64, 256, device=device)
if mode == "graph":
    with torch.no_grad():
        model(data)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(data)
profiler = torch.profiler.profile() if mode == "profiled" else None
before_us = launch_us()
if profiler is not None:
    profiler.start()
took = []
for _ in range(STEPS):
    begun = time.perf_counter()
    time.sleep(HOST_MS / 1e3)
    hidden = Work.apply(model[:2](data)) if mode != "compiled" else Work.apply(model(data))  # SITE forward
    loss = (model[2](hidden) if mode != "compiled" else hidden).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    took.append(time.perf_counter() - begun)
seen = 0
if profiler is not None:
    profiler.stop()
    seen = sum(event.count for event in profiler.key_averages() if "mm" in event.key)
if mode == "profiles later":
    with torch.profiler.profile() as later:
        model(data).sum().backward()
    seen = sum(event.count for event in later.key_averages() if "mm" in event.key)
print("TRUTH " + json.dumps({
    "steps": STEPS, "busy_ms": FORWARD_MS + BACKWARD_MS, "step_ms": 1e3 * statistics.median(took),
    "before_us": before_us, "after_us": launch_us(), "seen": seen,
}))  # fmt: skip
