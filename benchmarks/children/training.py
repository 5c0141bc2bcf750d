"""A training loop that times itself: `training.py OUT.json --step trivial --arm bare`.

The `bare` loop is an ordinary script that knows nothing of any tool; it is also what `flatout run` watches. The other
arms are the same loop with what each tool's own documentation asks the user to add.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

Batch = tuple[torch.Tensor, torch.Tensor]


class Constant(IterableDataset[Batch]):
    """The same batch, `count` times: nothing to load, so what a step costs is the step and whoever watches it."""

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch, self.count = batch, count

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.count):
            yield self.batch


@dataclass(slots=True)
class Marks:
    """The clock, and this thread's CPU time, at the end of every block; the device has finished by then."""

    block_steps: int
    device: torch.device
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps % self.block_steps == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.wall_s.append(time.perf_counter())
            self.cpu_s.append(time.thread_time())


@dataclass(frozen=True, slots=True)
class Parts:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Batch]
    device: torch.device
    marks: Marks


def build(depth: int, steps: int, block_steps: int, device: torch.device) -> Parts:
    """`depth` 0 is the trivial step; otherwise an MLP of that many layers, wide enough to keep a GPU busy."""
    torch.manual_seed(0)
    if depth == 0:
        model: nn.Module = nn.Linear(8, 2)
        batch = torch.randn(4, 8), torch.randn(4, 2)
    else:
        width, rows = (1024, 4096) if device.type == "cuda" else (128, 64)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)))
        batch = torch.randn(rows, width), torch.randn(rows, width)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        batch = batch[0].pin_memory(), batch[1].pin_memory()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Constant(batch, steps), batch_size=None)
    return Parts(model, optimizer, loader, device, Marks(block_steps, device))


def train(p: Parts, x: torch.Tensor, y: torch.Tensor) -> None:
    if p.device.type == "cuda":
        x, y = x.to(p.device, non_blocking=True), y.to(p.device, non_blocking=True)
    p.optimizer.zero_grad()
    loss = nn.functional.mse_loss(p.model(x), y)
    loss.backward()
    p.optimizer.step()


def bare(p: Parts) -> None:
    for x, y in p.loader:
        train(p, x, y)
        p.marks.step()


def traceml(p: Parts) -> None:
    tool = importlib.import_module("traceml_ai")
    tool.init(mode="auto", on_missing_aggregator="raise")
    for x, y in p.loader:
        with tool.trace_step(p.model):
            train(p, x, y)
        p.marks.step()


def gpuprof(p: Parts) -> None:
    with importlib.import_module("gpuprof").profile("benchmark"):
        bare(p)


def torch_profiler(p: Parts) -> None:
    """Active over all blocks, so that what is timed is recording alone, not the start and stop of a trace."""
    on = [torch.profiler.ProfilerActivity.CPU]
    if p.device.type == "cuda":
        on.append(torch.profiler.ProfilerActivity.CUDA)
    profile = torch.profiler.profile(
        activities=on, schedule=torch.profiler.schedule(wait=0, warmup=1, active=p.marks.block_steps * 100)
    )
    with profile:
        for x, y in p.loader:
            train(p, x, y)
            profile.step()
            p.marks.step()


ARMS = {"bare": bare, "traceml": traceml, "gpuprof": gpuprof, "torch.profiler": torch_profiler}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--arm", choices=ARMS, default="bare")
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--block-steps", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--warmup-blocks", type=int, default=2, help="at least 1")
    o = parser.parse_args()

    blocks = o.warmup_blocks + o.blocks
    parts = build(o.depth, blocks * o.block_steps, o.block_steps, torch.device(o.device))
    with contextlib.redirect_stdout(sys.stderr):
        ARMS[o.arm](parts)

    def us_per_step(times_s: list[float]) -> list[float]:
        # The first mark ends the warm-up, so it starts the first block that counts.
        kept = times_s[o.warmup_blocks - 1 :]
        return [1e6 * (b - a) / o.block_steps for a, b in itertools.pairwise(kept)]

    marks = parts.marks
    o.out.write_text(
        json.dumps(
            {
                "us_per_step": us_per_step(marks.wall_s),
                "cpu_us_per_step": us_per_step(marks.cpu_s),
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
