"""Where a run has settled: the steps before that (first batch, compilation, allocator, autotuning) are warm-up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEWEST = 4
_WINDOW = 5
_MOST_OF_RUN = 0.2
_CLOSE = 0.25
_SLOW = 2.0
# The typical step is known well enough from this many.
_TYPICAL_FROM = 20_000


def warmup_length(step_s: NDArray[np.float64]) -> int:
    """How many steps at the beginning are warm-up.

    The typical step is the median of the second half. Leading steps are warm-up while they take over twice that, or
    while the median of five steps from there is over a quarter off it. At most a fifth of the run is warm-up (but a
    slow first step always may be); a run that has not settled by then varies by nature and only loses its slow head.
    Fewer than four steps are all kept.
    """
    count = len(step_s)
    if count < _FEWEST:
        return 0
    typical = float(np.median(step_s[count // 2 :][-_TYPICAL_FROM:]))
    most = max(1, int(count * _MOST_OF_RUN))
    slow_head = 0
    while slow_head < most and step_s[slow_head] > _SLOW * typical:
        slow_head += 1
    for first in range(slow_head, most + 1):
        window = step_s[first : first + _WINDOW]
        if abs(float(np.median(window)) - typical) <= _CLOSE * typical and window[0] <= _SLOW * typical:
            return first
        if first >= _TYPICAL_FROM:
            break
    return slow_head
