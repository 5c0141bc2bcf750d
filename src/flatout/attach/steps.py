"""Writes finished steps into the recording, one slot each, or one for several short ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import wire
from .cost import Owed
from .output import Output

_PACK = wire.packer("step").pack
_SPAN = wire.packer("span").pack
_STEP = wire.KINDS["step"][0]
_SPAN_KIND = wire.KINDS["span"][0]
_UNKNOWN = wire.UNKNOWN_SAMPLES
_SPAN_WORTH_A_MARK_S = 0.001


class Steps(Protocol):
    """What has been gathered on one or several steps."""

    acc: list[float]
    index: int
    steps: int
    samples: int
    counted: bool
    batches: int
    backwards: int
    syncs: int
    copies: int
    queue: int
    own_s: float
    owed: Owed


class StepWriter:
    """The last record can be written over, by a step that turns out to go on (`steps` 0)."""

    def __init__(self, output: Callable[[], Output]) -> None:
        self._open_output = output
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self._output: Output | None = None
        self._place = -1
        self._start = self._end = 0.0
        self._written: tuple[list[float], tuple[float, ...]] = ([], ())

    def begin(self, now: float) -> None:
        """The first step starts here."""
        self._end = now

    def end_steps(self, now: float, steps: Steps, flags: int) -> None:
        """Write what ends now: new steps, or the rest of the one written last."""
        acc = steps.acc
        counts: tuple[float, ...] = (
            steps.steps, steps.samples, steps.owed.pay(steps.own_s, steps.steps),
            steps.batches, steps.backwards, steps.syncs, steps.copies,
        )  # fmt: skip
        if steps.steps == 0:
            acc = [a + b for a, b in zip(self._written[0], acc, strict=True)]
            counts = tuple(a + b for a, b in zip(self._written[1], counts, strict=True))
        else:
            self._start = self._end
            self._place = -1
        self._end = now
        self._written = acc, counts
        count, samples, own_s, *rest = counts
        body = _PACK(
            _STEP, 0, 0, steps.index, int(self._start * 1e9), int((now - self._start) * 1e9), count,
            samples if steps.counted else _UNKNOWN, *acc[:11], int(own_s * 1e9), steps.queue, *rest, flags,
        )  # fmt: skip
        output = self._output or self._first_output()
        if self._place >= 0:
            self._place = output.put(self._place, body)
        else:
            self._place = output.append(body)

    def _first_output(self) -> Output:
        self._output = self._open_output()
        return self._output

    def span(self, phase: int, since: float, now: float, site: int = -1) -> None:
        """Mark an evaluation, a checkpoint or the like on the timeline."""
        if now - since >= _SPAN_WORTH_A_MARK_S:
            self._open_output().append(_SPAN(_SPAN_KIND, 0, 0, phase, int(since * 1e9), int(now * 1e9), site))
