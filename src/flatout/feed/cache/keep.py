"""Never evict, but for a sample that is clearly dearer to load.

When every sample is read once an epoch, no policy hits more often than the share that fits, and keeping attains it.
What can still be gained is load time: a sample is worth its load-seconds per byte.
"""

from __future__ import annotations

from .policy import MOST_WORTH

# Times are noisy: only what is clearly dearer, and was so twice, is worth a second writing, and never in circles.
CLEARLY = 2


class Keep:
    """Worth: nanoseconds of loading per MiB."""

    name = "keep"
    touches = False
    lowers = False
    needs_two_readings = True

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        return max(1, min(MOST_WORTH, (load_ns << 20) // max(1, nbytes)))

    def touched(self, index: int) -> int:
        raise AssertionError("a hit does not change what a sample costs")

    def admits(self, newcomer: int, resident: int) -> bool:
        return newcomer >= CLEARLY * resident


def predicted_hit_rate(fraction: float) -> float:
    """Of samples that have been read before, each once an epoch, when `fraction` of all bytes fit."""
    return min(1.0, fraction)
