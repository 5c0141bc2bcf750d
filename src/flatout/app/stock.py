"""Batches that lie ready when a trial begins to count are taken at any pace: how fast others are made they do not say.

While a script loads its kernels its workers go on, up to some batches each. Where they are slower than the training,
that stock goes first, and the first steps are as quick as if there were no loader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.diagnose.ranks import Steps

# With fewer there is none to give away.
_FEWEST = 8
# Batches more or less at hand that are no stock, but how they happen to come.
_CHANCE = 2


def used_up(steps: Steps, first: int) -> int:
    """From which step on no more lie ready than there do in the end; `first` at least, of the rest half at most."""
    ready: Any = np.repeat(steps.queue_depth, np.maximum(1, steps.count.astype(int)))[first:]
    if len(ready) < _FEWEST or not np.isfinite(ready).all():
        return first
    usual = float(np.median(ready[-(len(ready) // 3) :]))
    if ready[0] <= usual + _CHANCE:
        return first
    return first + min(int(np.argmax(ready <= usual + _CHANCE / 2)), len(ready) // 2)
