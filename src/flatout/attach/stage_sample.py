"""One sampled step: the calls of its stages, their marks, and the milliseconds between them.

On a GPU a mark is a pooled CUDA event, queried and never waited for; on a CPU it is a reading of the clock.
"""

from __future__ import annotations

from typing import Any

from .stage_plan import Stage
from .tracer import clock

_NAN = float("nan")


class Call:
    """One call of one stage. Marks are None where they have not been set."""

    __slots__ = ("backward_begin", "backward_end", "forward_begin", "forward_end", "made_from", "nodes", "stage")

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.forward_begin: Any = None
        self.forward_end: Any = None
        self.backward_begin: Any = None
        self.backward_end: Any = None
        # Numbers of the nodes that made the inputs: an output that one of these made has passed through untouched.
        self.made_from: set[int] = set()
        self.nodes = 0  # that made the outputs; -1: the outputs are of a kind that cannot be looked into

    def forward_ms(self) -> float:
        return _between(self.forward_begin, self.forward_end)

    def backward_ms(self, end: Any) -> float:
        """Until `end`; 0 where no gradient came through, NaN where that could not be seen."""
        if self.nodes < 0:
            return _NAN
        return 0.0 if self.backward_begin is None else _between(self.backward_begin, end)


class Sample:
    """Everything about one step. It holds no tensor and no autograd node."""

    __slots__ = (
        "backwards",
        "calls",
        "dropped",
        "evaluated",
        "events",
        "in_backward",
        "index",
        "stack",
        "without_grad",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: list[Call] = []
        self.stack: list[Call | None] = []  # calls under way; None: within another stage's
        # Where a stage's backward begins, and where a whole pass has ended (None), in the order it happened.
        self.backwards: list[tuple[Call | None, Any]] = []
        self.events: list[tuple[Any, Any]] = []
        self.in_backward = 0
        self.dropped = self.evaluated = self.without_grad = False

    @property
    def is_whole(self) -> bool:
        return bool(self.calls) and not (self.dropped or self.evaluated or self.stack)

    def ends_of_backward(self) -> dict[int, Any]:
        """By the id of a call. Where nothing made the inputs (a batch): where the next begins, or the pass ends."""
        ends: dict[int, Any] = {}
        following: Any = None
        for call, mark in reversed(self.backwards):
            if call is not None:
                ends[id(call)] = call.backward_end if call.backward_end is not None else following
            following = mark
        return ends


class Marks:
    """Makes marks, and says when the device has passed them."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.forget()

    def forget(self) -> None:
        """A forked child cannot use its parent's events."""
        self._free: dict[Any, list[Any]] = {}
        self.own_s = 0.0

    def mark(self, sample: Sample, device: Any) -> Any:
        if device.type == "cpu":
            return clock()
        begun = clock()
        if sample.dropped or self._cuda.is_current_stream_capturing():
            # An event recorded now would become part of the user's graph.
            sample.dropped = True
            return None
        free = self._free.setdefault(device, [])
        event = free.pop() if free else self._cuda.Event(enable_timing=True)
        sample.events.append((device, event))
        event.record(self._cuda.current_stream(device))
        self.own_s += clock() - begun
        return event

    def are_passed(self, sample: Sample) -> bool:
        if not sample.events:
            return True
        if self._cuda.is_current_stream_capturing():
            return False  # nothing may be asked of CUDA now
        return all(event.query() for _, event in reversed(sample.events))

    def recycle(self, sample: Sample) -> None:
        for device, event in sample.events:
            self._free[device].append(event)
        sample.events = []


def _between(begin: Any, end: Any) -> float:
    if begin is None or end is None:
        return _NAN
    if isinstance(begin, float):
        return (end - begin) * 1e3 if isinstance(end, float) else _NAN
    try:
        return float(begin.elapsed_time(end))
    except (RuntimeError, TypeError):
        return _NAN  # events of two devices, or of one and a moment of the clock, cannot be compared
