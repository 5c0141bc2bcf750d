"""What watching adds to one of many small copies, by switching it on and off in one process.

    python -m benchmarks.copies [--device cuda] [--copies 384] [--blocks 60] [--gate]

Without a GPU a function that does nothing stands for the copy: what is left is what watching takes. The bar is a ratio,
so that it holds on any machine: to watch a copy takes about as long as a `Tensor.to` that has nothing to do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from flatout.attach.batch import PaddingInspector
from flatout.attach.context import Context
from flatout.attach.graph import GraphInspector
from flatout.attach.patching import CMethodWrapper
from flatout.attach.phases import Phases, StepWriter
from flatout.attach.recorder import Output
from flatout.attach.sites import Sites
from flatout.attach.tracer import Tracer
from flatout.attach.watch.transfers import TransferWatch

BAR = 1.25


@dataclass(frozen=True, slots=True)
class Moved:
    """What the stand-in for a copy gives."""

    is_cuda: bool = True


MOVED = Moved()


def stand_in_for_a_copy(*args: Any, **kwargs: Any) -> Moved:
    return MOVED


@dataclass(slots=True)
class Copying:
    """Steps that send their batch in pieces, and what watches them."""

    device: str
    copies: int
    pieces: list[torch.Tensor] = field(init=False)
    tracer: Tracer = field(init=False)
    context: Context = field(init=False)
    watch: TransferWatch = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = [torch.zeros(4) for _ in range(self.copies)]
        output = Output()
        writer = StepWriter(lambda: output)
        phases, sites = Phases(writer), Sites(lambda: output)
        self.tracer = Tracer(phases.consume)
        graph = GraphInspector(torch, phases, PaddingInspector(torch, lambda: output))
        self.context = Context(torch, self.tracer, phases, writer, sites, graph, lambda: output, fail)
        self.watch = TransferWatch(self.context)
        self.tracer.claim()
        self.tracer.on_device = True

    def step_us(self) -> float:
        """Of one copy, with what is done about it at the end of the step."""
        device = self.device
        begun = time.perf_counter()
        for piece in self.pieces:
            piece.to(device)
        self.tracer.ended += 1
        self.tracer.flush(time.perf_counter())
        return (time.perf_counter() - begun) / self.copies * 1e6

    def block_us(self, steps: int = 20) -> float:
        return min(self.step_us() for _ in range(steps))

    @contextmanager
    def watched(self, is_watched: bool) -> Iterator[None]:
        original = torch.Tensor.to
        if self.device != "cuda":
            call = self.watch._make_move("to", stand_in_for_a_copy) if is_watched else stand_in_for_a_copy
            # Without watching there is no stand-in for the method either: a plain function is nearest to it.
            setattr(torch.Tensor, "to", CMethodWrapper(original, call) if is_watched else call)  # noqa: B010
            try:
                yield
            finally:
                setattr(torch.Tensor, "to", original)  # noqa: B010
            return
        if is_watched:
            self.watch.install()
        try:
            yield
        finally:
            self.context.patches.restore()


def fail(error: Exception) -> None:
    raise error


def nothing_to_do_us(repeats: int = 200) -> float:
    piece, dtype = torch.zeros(4), torch.float32

    def block() -> float:
        begun = time.perf_counter()
        for _ in range(repeats):
            piece.to(dtype)
        return (time.perf_counter() - begun) / repeats * 1e6

    return min(block() for _ in range(200))


def added_us(copying: Copying, blocks: int) -> list[float]:
    """What watching adds to a copy, block by block."""
    arms: dict[bool, Callable[[], float]] = {False: copying.block_us, True: copying.block_us}
    found = []
    for _ in range(blocks):
        took = {}
        for is_watched, block in arms.items():
            with copying.watched(is_watched):
                took[is_watched] = block()
        found.append(took[True] - took[False])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--copies", type=int, default=384)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--gate", action="store_true", help="exit 1 if the bar is missed")
    o = parser.parse_args()
    added = sorted(added_us(Copying(o.device, o.copies), o.blocks))
    mid, nothing = statistics.median(added), nothing_to_do_us()
    quarter = len(added) // 4
    print(f"{o.copies} small copies a step, {o.device}: watching adds {mid:.2f} us to each", end="")
    print(f" (middle half {added[quarter]:.2f} to {added[-1 - quarter]:.2f})")
    print(f"a Tensor.to with nothing to do takes {nothing:.2f} us: {mid / nothing:.2f} of it, bar {BAR:g}")
    return 1 if o.gate and mid / nothing > BAR else 0


if __name__ == "__main__":
    sys.exit(main())
