"""What is done when the machine's memory runs short and there are more workers than the script asked for.

A dataset may keep what it has read, in each worker anew: with four times the workers it keeps four times as much. Half
of the workers are renewed then, since a fresh one has kept nothing yet. Where that does not help for long there are
fewer of them, and in the end no more than the script asked for: what those take is its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from .host_memory import Memory, memory

# Of the machine's memory, or of the control group's, what is left; in a large one so many bytes. A multiple is plenty.
_SHORT, _SHORT_BYTES, _PLENTY = 0.12, 16 << 30, 2.5
_LOOK_S, _LOOK_AT_PLENTY_S = 1.0, 5.0
# A worker finishes the sample it is at before it goes.
_TAKES_EFFECT_S = 4.0
_HELPS_FOR_S = 6.0


@dataclass(frozen=True, slots=True)
class Relief:
    """Have so many `workers` from now on, `renewed` of them fresh ones."""

    workers: int
    renewed: int = 0


class Shortage:
    """Asked at every batch; looks every few seconds."""

    def __init__(
        self,
        asked_for: int,
        look: Callable[[], Memory] = memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`asked_for`: the workers that the script wants by itself; it has one at least."""
        self._asked_for = max(1, asked_for)
        self._look = look
        self._clock = clock
        self._next_look_s = 0.0
        self._relieved_s: float | None = None

    def relief(self, workers: int) -> Relief | None:
        """None where nothing is to be done."""
        now_s = self._clock()
        if workers <= self._asked_for or now_s < self._next_look_s:
            return None
        there = self._look()
        least_bytes = min(_SHORT * there.limit_bytes, _SHORT_BYTES)
        self._next_look_s = now_s + (_LOOK_AT_PLENTY_S if there.free_bytes > _PLENTY * least_bytes else _LOOK_S)
        if there.free_bytes >= least_bytes:
            return None
        helped_s = now_s - self._relieved_s if self._relieved_s is not None else _HELPS_FOR_S
        self._relieved_s, self._next_look_s = now_s, now_s + _TAKES_EFFECT_S
        if helped_s < _HELPS_FOR_S:
            return Relief(max(self._asked_for, workers // 2))
        return Relief(workers, renewed=workers // 2)
