"""What watching costs, by switching the tracer on and off in one process: free of the differences between processes.

python benchmarks/inprocess.py [cpu|cuda] [blocks] [layers]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from flatout import attach
from flatout.attach import session

device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
BLOCKS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
LAYERS = int(sys.argv[3]) if len(sys.argv) > 3 else 0
STEPS = 1500 if LAYERS == 0 else 200
WARM = 1200 if LAYERS == 0 else 20
torch.set_num_threads(1)
if LAYERS:
    model: nn.Module = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(LAYERS)))
    batch = torch.randn(4096, 1024), torch.randn(4096, 1024)
else:
    model = nn.Linear(8, 2)
    batch = torch.randn(4, 8), torch.randn(4, 2)
if device.type == "cuda":
    batch = batch[0].pin_memory(), batch[1].pin_memory()
    torch.set_float32_matmul_precision("high")
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


class Constant(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        while True:
            yield batch


def block() -> float:
    """Microseconds a step, over one block after a warm-up."""
    batches = iter(DataLoader(Constant(), batch_size=None))
    begun = 0.0
    for step in range(WARM + STEPS):
        if step == WARM:
            if device.type == "cuda":
                torch.cuda.synchronize()
            begun = time.perf_counter()
        x, y = next(batches)
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / STEPS * 1e6


os.environ["FLATOUT_RUN_DIR"] = tempfile.mkdtemp()
block()
bare, watched, own = [], [], []
for _ in range(BLOCKS):
    bare.append(block())
    attach.install()
    watched.append(block())
    assert session._session is not None
    own.append(session._session.phases.own_s * 1e6)
    attach.detach()
differences = sorted(w - b for w, b in zip(watched, bare, strict=True))
quarter = len(differences) // 4
print(
    f"{device.type} layers {LAYERS}: bare {statistics.median(bare):.1f} us, watched +{statistics.median(differences):.1f} us"
    f" (middle half {differences[quarter]:+.1f} to {differences[-1 - quarter]:+.1f}),"
    f" {100 * statistics.median(differences) / statistics.median(bare):.2f}%, own estimate {statistics.median(own):.1f} us"
)
