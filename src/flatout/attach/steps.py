"""Writes finished steps into the recording, one slot each, and merges them in very long runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import wire
from .wire import OTHER

_PACK = wire.packer("step").pack
_SPAN = wire.packer("span").pack
_STEP = wire.KINDS["step"][0]
_SPAN_KIND = wire.KINDS["span"][0]
SAMPLES_FROM_GRAPH = 4
_U16 = 0xFFFF
_SPAN_WORTH_A_MARK_NS = 1_000_000
# After this many records each holds twice as many steps, so a week of 2 ms steps stays under a gigabyte.
RECORDS_PER_LEVEL = 1 << 19


class Step(Protocol):
    """What the tracer has gathered on a step."""

    acc: list[int]
    samples: int
    batches: int
    backwards: int
    syncs: int
    copies: int
    queue: int
    own_ns: int
    graph_samples: int


class Output(Protocol):
    def append(self, body: bytes) -> int: ...
    def put(self, place: int, body: bytes) -> int: ...


class StepWriter:
    """The last record stays open: a step that goes on, or one merged into it, is written over it."""

    def __init__(self, output: Callable[[], Output]) -> None:
        self._output = output
        self.housekeeping: Callable[[int], int] = lambda now: now
        self.on_begin: Callable[[], None] = lambda: None
        self.forget()

    def forget(self) -> None:
        self.index = -1
        self.steps_per_record = 1
        self._records = 0
        self._place = -1
        self._start = self._end = 0
        self._next_housekeeping = 0
        self._acc: list[int] = []
        self._counts = [0] * 6
        self._steps_here = 1

    def begin(self, now: int) -> None:
        """The first step starts here."""
        self._end = now
        self.on_begin()

    def end_step(self, now: int, step: Step, goes_on: bool, flags: int) -> None:
        samples = step.samples
        if not step.batches and not goes_on:
            # No loader gave this batch; its size was read off the autograd graph, if it could be.
            samples = step.graph_samples * (step.backwards or 1)
            flags |= SAMPLES_FROM_GRAPH
        counts = [samples, step.own_ns, step.batches, step.backwards, step.syncs, step.copies]
        if goes_on or self._steps_here < self.steps_per_record:
            self._acc = [a + b for a, b in zip(self._acc, step.acc)]
            self._counts = [a + b for a, b in zip(self._counts, counts)]
            self._steps_here += 0 if goes_on else 1
        else:
            self._acc, self._counts, self._steps_here = step.acc, counts, 1
            self._start = self._end
            self._place = -1
        if not goes_on:
            self.index += 1
        self._end = now
        self._write(step.queue, flags)
        if now >= self._next_housekeeping:
            self._next_housekeeping = self.housekeeping(now)

    def _write(self, queue: int, flags: int) -> None:
        samples, own_ns, batches, backwards, syncs, copies = self._counts
        acc = self._acc
        body = _PACK(
            _STEP, 0, 0, self.index, self._start, self._end - self._start, self._steps_here,
            samples if 0 < samples < wire.UNKNOWN_SAMPLES else wire.UNKNOWN_SAMPLES,
            acc[0] * 1e-9, acc[1] * 1e-9, acc[2] * 1e-9, acc[3] * 1e-9, acc[4] * 1e-9, acc[5] * 1e-9,
            acc[6] * 1e-9, acc[7] * 1e-9, acc[8] * 1e-9, acc[9] * 1e-9, acc[OTHER] * 1e-9,
            own_ns if own_ns < 0xFFFFFFFF else 0xFFFFFFFF, queue,
            batches & _U16, backwards & _U16, syncs & _U16, copies & _U16, flags,
        )  # fmt: skip
        if self._place >= 0:
            self._place = self._output().put(self._place, body)
            return
        self._place = self._output().append(body)
        self._records += 1
        if self._records % RECORDS_PER_LEVEL == 0:
            self.steps_per_record *= 2

    def span(self, phase: int, since: int, now: int, site: int = -1) -> None:
        """Mark an evaluation, a checkpoint or the like on the timeline."""
        if now - since >= _SPAN_WORTH_A_MARK_NS:
            self._output().append(_SPAN(_SPAN_KIND, 0, 0, phase, since, now, site))
