"""What watching costs, by switching the tracer on and off in one process.

    python -m benchmarks.inprocess [--device cuda] [--layers 4] [--rows 4096] [--width 1024] [--blocks 20]

Two processes differ by more than what we look for, by where their memory happens to lie; two blocks of one process do
not. Beside the time on the clock it takes the training thread's processor time, which a neighbour on the same machine
does not move. It leaves out the parent process and its telemetry: `benchmarks.overhead` times the whole product.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from flatout import attach
from flatout.attach import session

Batch = tuple[torch.Tensor, torch.Tensor]


class Constant(IterableDataset[Batch]):
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self._batch


@dataclass(frozen=True, slots=True)
class Loop:
    """A training loop; with no layers one that does next to nothing."""

    model: nn.Module
    batch: Batch
    device: torch.device
    warm_steps: int
    steps: int

    @classmethod
    def make(cls, device: torch.device, layers: int, rows: int, width: int) -> Loop:
        rows, width, out = (rows, width, 16) if layers else (4, 8, 2)
        stack = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
        model = nn.Sequential(*stack, nn.Linear(width, out)).to(device)
        x, y = torch.randn(rows, width), torch.randn(rows, out)
        batch = (x.pin_memory(), y.pin_memory()) if device.type == "cuda" else (x, y)
        # Short steps settle down to their pace only after the first thousand, on a device after the first few hundred.
        return cls(model, batch, device, *((600, 200) if layers else (1800, 1500)))

    def block_us(self) -> tuple[float, float]:
        """Microseconds a step over one block, on the clock and of the training thread's processor time."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        batches = iter(DataLoader(Constant(self.batch), batch_size=None))
        on_device = self.device.type == "cuda"
        begun = begun_cpu = 0.0
        for step in range(self.warm_steps + self.steps):
            if step == self.warm_steps:
                begun, begun_cpu = self._now(), time.thread_time()
            x, y = next(batches)
            if on_device:
                x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
            optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            optimizer.step()
        cpu_s = time.thread_time() - begun_cpu
        return (self._now() - begun) / self.steps * 1e6, cpu_s / self.steps * 1e6

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    os.environ["FLATOUT_RUN_DIR"] = tempfile.mkdtemp()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    loop = Loop.make(torch.device(options.device), options.layers, options.rows, options.width)
    loop.block_us()
    pairs = []
    own = []
    for _ in range(options.blocks):
        bare = loop.block_us()
        attach.install()
        pairs.append((bare, loop.block_us()))
        assert session._session is not None
        own.append(session._session.phases.own_s * 1e6)
        attach.detach()
    print(f"{options.device}, {options.layers} layers of {options.width}, {len(pairs)} blocks in turns")
    for which, name in enumerate(("on the clock", "processor time")):
        step_us = statistics.median(bare[which] for bare, _ in pairs)
        added = sorted(watched[which] - bare[which] for bare, watched in pairs)
        middle = f"middle half {added[len(added) // 4]:.1f} to {added[-1 - len(added) // 4]:.1f}"
        cost_us = statistics.median(added)
        print(f"{name}: a step takes {step_us:.1f} us, watching adds {cost_us:.1f} us", end="")
        print(f" ({middle}), {100 * cost_us / step_us:.2f}%")
    print(f"its own estimate is {statistics.median(own):.1f} us")


if __name__ == "__main__":
    main()
