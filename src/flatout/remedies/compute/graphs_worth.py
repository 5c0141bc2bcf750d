"""Is a replayed model worth it? Steps are timed before and after; the device is waited for at the ends of blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..site import Site
from .compile_worth import Blocks
from .graphs_call import GraphedCall

_WARM_UP, _SETTLED = 5, 5
_LONGEST_UNRECORDED = 60


class Worth:
    """Goes from timing without, over recording, to timing with."""

    def __init__(
        self,
        site: Site,
        begin: Callable[[], Sequence[GraphedCall]],
        on_device: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._site = site
        self._begin = begin
        self._on_device = on_device
        self._clock = clock
        self._calls: Sequence[GraphedCall] = ()
        self._stage = self._wait
        self._left = _WARM_UP
        self._blocks = Blocks(self._now, self._clock)
        self._before_s = 0.0
        self._is_second_look = False

    def step(self, number: int) -> None:
        self._stage()

    def _now(self) -> float:
        if self._on_device:
            self._site.torch.cuda.synchronize()
        return self._clock()

    def _wait(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._stage = self._time_before

    def _time_before(self) -> None:
        if self._blocks.step():
            self._before_s = self._blocks.step_s
            self._calls = self._begin()
            self._left = _LONGEST_UNRECORDED
            self._stage = self._await_recording

    def _await_recording(self) -> None:
        self._left -= 1
        if all(call.is_recorded for call in self._calls):
            self._left, self._stage = _SETTLED, self._settle
        elif self._left == 0:
            why = next((call.why_not for call in self._calls if call.why_not), "it was not called in training mode")
            self._site.give_up(f"nothing could be recorded in {_LONGEST_UNRECORDED} steps: {why}")

    def _settle(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._blocks = Blocks(self._now, self._clock)
            self._stage = self._time_after

    def _time_after(self) -> None:
        if not self._blocks.step():
            return
        after_s = self._blocks.step_s
        before_ms, after_ms = 1e3 * self._before_s, 1e3 * after_s
        if after_s < self._before_s:
            self._site.tell(step_ms_before=round(before_ms, 3), step_ms_after=round(after_ms, 3))
            self._stage = self._done
        elif self._is_second_look:
            self._site.give_up(f"a step takes {after_ms:.3g} ms replayed and {before_ms:.3g} ms without")
        else:
            self._is_second_look = True
            self._blocks = Blocks(self._now, self._clock)

    def _done(self) -> None:
        """It has shown its worth; whether calls are still replayed, they see for themselves."""
