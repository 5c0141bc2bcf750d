"""Writes finished steps into the recording, one slot each, and merges them in very long runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import wire

_PACK = wire.packer("step").pack
_SPAN = wire.packer("span").pack
_STEP = wire.KINDS["step"][0]
_SPAN_KIND = wire.KINDS["span"][0]
SAMPLES_FROM_GRAPH = 4
_UNKNOWN = wire.UNKNOWN_SAMPLES
_SPAN_WORTH_A_MARK_S = 0.001
# After this many records each holds twice as many steps, so a week of 2 ms steps stays under a gigabyte.
RECORDS_PER_LEVEL = 1 << 19


class Step(Protocol):
    """What the tracer has gathered on a step."""

    acc: list[float]
    samples: int
    batches: int
    backwards: int
    syncs: int
    copies: int
    queue: int
    own_s: float
    graph_samples: int


class Output(Protocol):
    def append(self, body: bytes) -> int: ...
    def put(self, place: int, body: bytes) -> int: ...


class StepWriter:
    """The last record stays open: a step that goes on, or one merged into it, is written over it."""

    def __init__(self, output: Callable[[], Output]) -> None:
        self._open_output = output
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.index = -1
        self._output: Output | None = None
        self._steps_per_record = self._steps_here = 1
        self._next_level = RECORDS_PER_LEVEL
        self._place = -1
        self._start = self._end = 0.0
        self._acc: list[float] = []
        self._counts: tuple[float, ...] = ()

    def begin(self, now: float) -> None:
        """The first step starts here."""
        self._end = now

    def end_step(self, now: float, step: Step, goes_on: bool, flags: int) -> None:
        """Write the step that ends now; `goes_on`: it continues the one written last."""
        samples = step.samples
        if not step.batches and not goes_on:
            # No loader gave this batch; its size was read off the autograd graph, if it could be.
            samples = step.graph_samples * (step.backwards or 1)
            flags |= SAMPLES_FROM_GRAPH
        acc = step.acc
        counts = (samples, step.own_s, step.batches, step.backwards, step.syncs, step.copies)
        if goes_on or self._steps_here < self._steps_per_record:
            acc = [a + b for a, b in zip(self._acc, acc, strict=True)]
            counts = tuple(a + b for a, b in zip(self._counts, counts, strict=True))
            self._steps_here += not goes_on
        else:
            self._start = self._end
            self._place = -1
            self._steps_here = 1
        self.index += not goes_on
        self._end = now
        self._acc = acc
        self._counts = counts
        samples, own_s, batches, backwards, syncs, copies = counts
        body = _PACK(
            _STEP, 0, 0, self.index, int(self._start * 1e9), int((now - self._start) * 1e9), self._steps_here,
            samples or _UNKNOWN, *acc[:11], int(own_s * 1e9), step.queue, batches, backwards, syncs, copies, flags,
        )  # fmt: skip
        output = self._output or self._first_output()
        if self._place >= 0:
            self._place = output.put(self._place, body)
            return
        self._place = output.append(body)
        if self.index >= self._next_level:
            self._steps_per_record *= 2
            self._next_level = self.index + RECORDS_PER_LEVEL * self._steps_per_record

    def _first_output(self) -> Output:
        self._output = self._open_output()
        return self._output

    def span(self, phase: int, since: float, now: float, site: int = -1) -> None:
        """Mark an evaluation, a checkpoint or the like on the timeline."""
        if now - since >= _SPAN_WORTH_A_MARK_S:
            self._open_output().append(_SPAN(_SPAN_KIND, 0, 0, phase, int(since * 1e9), int(now * 1e9), site))
