"""Is a compiled or recorded model worth it? Steps are timed before and after, and compilations counted.

The device is waited for at the ends of a few blocks of steps, never in every one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ...records.message import Message, message
from ..site import Site

_BLOCK, _BLOCKS = 10, 2
# Slow steps tell as much in fewer: so many at least, and so long.
_SHORT, _LONG_S = 3, 1.0
# Before timing: steps of a fresh process, and steps in which nothing was compiled any more.
_WARM_UP, _SETTLED = 5, 5
# So many compilations after it had settled are a storm; an evaluation and a last, smaller batch are not.
_STORM = 8
_LONGEST_UNSETTLED = 100
_LOOK_EVERY = 50


class Blocks:
    """The time of a step, by the quickest of some blocks: the others had a checkpoint or an evaluation in them.

    `now` may wait for the device, `clock` does not: where it is given, blocks of slow steps are shorter.
    """

    def __init__(self, now: Callable[[], float], clock: Callable[[], float] | None = None) -> None:
        self._now = now
        self._clock = clock
        self._steps = 0
        self._began: float | None = None
        self.means_s: list[float] = []

    def step(self) -> bool:
        """One more step has ended; are there enough?"""
        if self._began is None:
            self._began = self._now()
            return False
        self._steps += 1
        if self._steps == _BLOCK or self._is_long(self._began):
            now = self._now()
            self.means_s.append((now - self._began) / self._steps)
            self._began, self._steps = now, 0
        return len(self.means_s) >= _BLOCKS

    def _is_long(self, began: float) -> bool:
        return self._clock is not None and self._steps >= _SHORT and self._clock() - began >= _LONG_S

    @property
    def step_s(self) -> float:
        return min(self.means_s)


class Worth:
    """Goes from timing steps without a change, over the change settling down, to timing them with it."""

    # Of what is said when it is not quicker, and whether blocks of slow steps are shorter.
    slower = ""
    shortens_blocks = False

    def __init__(
        self, site: Site, begin: Callable[[], Any], on_device: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._site = site
        self._begin = begin
        self._on_device = on_device
        self._clock = clock
        self._stage = self._wait
        self._left = _WARM_UP
        self._before_s = self._after_s = 0.0
        self._is_second_look = False
        site.is_settling = True
        self._time_anew()

    def step(self, number: int) -> None:
        self._stage(number)

    def _now(self) -> float:
        if self._on_device:
            self._site.torch.cuda.synchronize()
        return self._clock()

    def _time_anew(self) -> None:
        self._blocks = Blocks(self._now, self._clock if self.shortens_blocks else None)

    def _wait(self, number: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._stage = self._time_before

    def _time_before(self, number: int) -> None:
        if self._blocks.step():
            self._before_s = self._blocks.step_s
            self._stage = self._settle
            self._change()

    def _change(self) -> None:
        self._begin()

    def _settle(self, number: int) -> None:
        """Until `_time_after` can begin."""
        raise NotImplementedError

    def _time_after(self, number: int) -> None:
        if not self._blocks.step():
            return
        self._after_s = self._blocks.step_s
        before_ms, after_ms = 1e3 * self._before_s, 1e3 * self._after_s
        if self._after_s < self._before_s:
            self._site.tell(step_ms_before=round(before_ms, 3), step_ms_after=round(after_ms, 3), **self._cost())
            self._site.settle()
            self._stage = self._look
        elif self._is_second_look:
            self._site.give_up(Message(self.slower, {"after_ms": after_ms, "before_ms": before_ms}))
        else:
            self._is_second_look = True
            self._time_anew()

    def _cost(self) -> dict[str, object]:
        """What else there is to tell once it has shown its worth."""
        return {}

    def _look(self, number: int) -> None:
        """At every step from then on."""


class CompileWorth(Worth):
    """Settled when nothing was compiled for some steps; then looks now and then."""

    slower = "compile.slower"

    def _change(self) -> None:
        self._compile_began_s, self._steps_compiling, self._left = self._now(), 0, _SETTLED
        self._begin()
        self._compiled = compilations()

    def _settle(self, number: int) -> None:
        self._steps_compiling += 1
        count = compilations()
        self._left = _SETTLED if count != self._compiled else self._left - 1
        self._compiled = count
        if self._left == 0:
            self._settled_at = count
            self._compile_s = self._now() - self._compile_began_s
            self._time_anew()
            self._stage = self._time_after
        elif self._steps_compiling >= _LONGEST_UNSETTLED:
            self._site.give_up(message("compile.unsettled", steps=self._steps_compiling))

    def _time_after(self, number: int) -> None:
        if compilations() == self._compiled:
            super()._time_after(number)
            return
        # Something else came by, an evaluation perhaps; these steps tell nothing.
        self._compiled = compilations()
        self._time_anew()
        self._give_up_in_storm()

    def _cost(self) -> dict[str, object]:
        extra_s = max(0.0, self._compile_s - self._steps_compiling * self._after_s)
        return {
            "compile_s": round(extra_s, 1),
            "paid_back_after_steps": round(extra_s / (self._before_s - self._after_s)),
            "graph_breaks": graph_breaks(),
            "recompiled": self._compiled - self._settled_at,
        }

    def _look(self, number: int) -> None:
        if number % _LOOK_EVERY == 0:
            self._compiled = compilations()
            self._give_up_in_storm()
            self._site.tell(recompiled=self._compiled - self._settled_at, graph_breaks=graph_breaks())

    def _give_up_in_storm(self) -> None:
        again = self._compiled - self._settled_at
        if again > _STORM:
            self._site.give_up(message("compile.again", times=again))


def _counters() -> dict[str, dict[str, int]]:
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return getattr(utils, "counters", {})


def compilations() -> int:
    """Frames compiled in this process so far."""
    return int(_counters().get("frames", {}).get("total", 0))


def graph_breaks() -> int:
    return sum(_counters().get("graph_break", {}).values())
