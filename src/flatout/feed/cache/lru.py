"""The sample that was not read for the longest time leaves first: for orders that come back soon to what they read."""

from __future__ import annotations

import math
import time


class Lru:
    """Worth: the moment of the last reading, on the clock that all processes of a host share."""

    name = "lru"
    touches = True
    lowers = False
    needs_two_readings = False

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        return time.monotonic_ns()

    def touched(self, index: int) -> int:
        return time.monotonic_ns()

    def admits(self, newcomer: int, resident: int) -> bool:
        return True


def predicted_hit_rate(fraction: float) -> float:
    """Under a new shuffle every epoch, when `fraction` of all bytes fit."""
    if fraction >= 1.0:
        return 1.0
    return fraction + (1.0 - fraction) * math.log1p(-fraction)
