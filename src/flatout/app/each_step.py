"""What each step of a recording took, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.diagnose.ranks import Steps
from flatout.records.report import PHASES


def each_step(steps: Steps) -> tuple[Any, Any, Any]:
    """Seconds, samples and seconds of pause. A record may hold several steps: they share its time and samples."""
    counts = np.maximum(1, steps.count.astype(int))
    pauses = steps.phase_s[:, [PHASES.index("eval"), PHASES.index("checkpoint")]].sum(axis=1, dtype=np.float64)
    times, samples, pauses = (np.repeat(values / counts, counts) for values in (steps.wall_s, steps.samples, pauses))
    return times, samples, pauses
