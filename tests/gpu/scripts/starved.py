"""A loop whose device idles a known share of the time: argv[1] the share, argv[2] "sync" or "async".

Truth: one minus the device's busy time, from events of the script's own around each step's kernels, over the wall time
of the synchronised loop.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE_MS = 20.0
STEPS = 60
WARMUP = 8
share, mode = float(sys.argv[1]), sys.argv[2]
# With a synchronisation a step takes wait + work; without, the work hides behind the wait for the next batch.
wait_ms = DEVICE_MS * share / (1 - share) if mode == "sync" else DEVICE_MS / (1 - share) if share else 0.0


class Waiting(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if wait_ms:
            time.sleep(wait_ms * 1e-3)
        return torch.ones(64)


def cycles_per_ms() -> float:
    torch.cuda._sleep(10_000_000)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    torch.cuda._sleep(50_000_000)
    end.record()
    torch.cuda.synchronize()
    return 50_000_000 / begin.elapsed_time(end)


per_ms = cycles_per_ms()
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(STEPS)]
began = 0.0
for step, x in enumerate(DataLoader(Waiting(), batch_size=1)):
    if step == WARMUP:
        torch.cuda.synchronize()
        began = time.perf_counter()
    begin, end = events[step]
    begin.record()
    loss = model(x.cuda(non_blocking=True)).mean()
    torch.cuda._sleep(int(per_ms * DEVICE_MS / 2))
    optimizer.zero_grad()
    loss.backward()
    torch.cuda._sleep(int(per_ms * DEVICE_MS / 2))
    optimizer.step()
    end.record()
    if mode == "sync":
        loss.item()
torch.cuda.synchronize()
wall_ms = 1e3 * (time.perf_counter() - began)
busy_ms = sum(begin.elapsed_time(end) for begin, end in events[WARMUP:])
print(
    "TRUTH " + json.dumps({"steps": STEPS, "idle_share": 1 - busy_ms / wall_ms, "wall_ms": wall_ms, "busy_ms": busy_ms})
)
