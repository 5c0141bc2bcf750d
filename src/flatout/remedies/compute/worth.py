"""Is a compiled model worth it? Steps are timed before and after, and compilations counted.

The device is waited for at the ends of a few blocks of steps, never in every one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ...records.message import message
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


class CompileWorth:
    """Goes from timing without, over compiling, to timing with; then only looks now and then."""

    def __init__(
        self, site: Site, begin: Callable[[], None], on_device: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._site = site
        self._begin = begin
        self._on_device = on_device
        self._clock = clock
        self._stage = self._wait
        self._left = _WARM_UP
        self._blocks = Blocks(self._now)
        self._before_s = self._after_s = 0.0
        self._compile_began = 0.0
        self._steps_compiling = 0
        self._compiled = self._settled_at = 0
        self._is_second_look = False

    def step(self, number: int) -> None:
        self._stage(number)

    def _now(self) -> float:
        if self._on_device:
            self._site.torch.cuda.synchronize()
        return self._clock()

    def _wait(self, number: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._stage = self._time_before

    def _time_before(self, number: int) -> None:
        if self._blocks.step():
            self._before_s = self._blocks.step_s
            self._compile_began, self._steps_compiling, self._left = self._now(), 0, _SETTLED
            self._begin()
            self._compiled = compilations()
            self._stage = self._settle

    def _settle(self, number: int) -> None:
        self._steps_compiling += 1
        count = compilations()
        self._left = _SETTLED if count != self._compiled else self._left - 1
        self._compiled = count
        if self._left == 0:
            self._settled_at = count
            self._compile_s = self._now() - self._compile_began
            self._blocks = Blocks(self._now)
            self._stage = self._time_after
        elif self._steps_compiling >= _LONGEST_UNSETTLED:
            self._site.give_up(message("compile.unsettled", steps=self._steps_compiling))

    def _time_after(self, number: int) -> None:
        if compilations() != self._compiled:
            # Something else came by, an evaluation perhaps; these steps tell nothing.
            self._compiled = compilations()
            self._blocks = Blocks(self._now)
            self._storms()
            return
        if not self._blocks.step():
            return
        self._after_s = self._blocks.step_s
        if self._after_s < self._before_s:
            self._pays()
            self._stage = self._look
        elif self._is_second_look:
            before, after = 1e3 * self._before_s, 1e3 * self._after_s
            self._site.give_up(message("compile.slower", after_ms=after, before_ms=before))
        else:
            self._is_second_look = True
            self._blocks = Blocks(self._now)

    def _pays(self) -> None:
        saved_s = self._before_s - self._after_s
        extra_s = max(0.0, self._compile_s - self._steps_compiling * self._after_s)
        self._site.tell(
            step_ms_before=round(1e3 * self._before_s, 3),
            step_ms_after=round(1e3 * self._after_s, 3),
            compile_s=round(extra_s, 1),
            paid_back_after_steps=round(extra_s / saved_s),
            graph_breaks=graph_breaks(),
            recompiled=self._compiled - self._settled_at,
        )

    def _look(self, number: int) -> None:
        if number % _LOOK_EVERY == 0:
            self._compiled = compilations()
            self._storms()
            self._site.tell(recompiled=self._compiled - self._settled_at, graph_breaks=graph_breaks())

    def _storms(self) -> None:
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
