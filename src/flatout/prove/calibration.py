"""A against A: what the same thing differs by when it is simply run again.

A process has luck of its own: where its memory lies, which cores and clocks it gets. Blocks within one process never
show that, so it is learnt from arms that were run more than once, and added to every interval. A few trials tell little
about a spread; what any machine does is therefore held as if some trials had shown it already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flatout.prove.rates import common_unit, measured
from flatout.prove.resampling import errors, log_seconds
from flatout.records.proof import By, Spread
from flatout.records.trial import Trial

# What processes differ by on any machine, and how many trials that is worth.
EXPECTED = 0.01
_WEIGHT = 2.5
# Within one process arms that take turns share their luck; what is left is what a turn does to the next.
IN_TURNS = Spread(expected=0.002, factor=1.0, weight=8.0, typical=0.002, trials=0)
# An arm whose own trials scatter by so many times the variance of all is not like the others.
_UNLIKE = 6.0


def calibrated(arms: Sequence[Sequence[Trial]], by: By = "blocks") -> Spread:
    """From the trials of each arm. Give every arm that was run, once; those of one trial are left aside."""
    repeated = [trials for trials in map(measured, arms) if len(trials) > 1]
    squares, freedom, variances = 0.0, 0, [EXPECTED**2]
    for trials in repeated:
        unit = common_unit(trials)
        logs = np.array([log_seconds(trial, unit, by) for trial in trials])
        within = [float(np.var(errors(trial, unit, by))) for trial in trials]
        variance = EXPECTED**2 + float(np.mean(within))
        squares += float(np.sum((logs - logs.mean()) ** 2)) / variance
        freedom += len(trials) - 1
        variances.append(variance)
    factor = (_WEIGHT + squares) / (_WEIGHT + freedom)
    typical = math.sqrt(factor * float(np.mean(variances[-len(repeated) or None :])))
    return Spread(EXPECTED, factor, _WEIGHT + freedom, typical, sum(map(len, repeated)))


def spread_for(together: Spread, before: Sequence[Trial], after: Sequence[Trial], by: By) -> Spread:
    """What to judge one of several arms by: all of them together, unless its own trials are of another kind."""
    alone = calibrated([after], by)
    return calibrated([before, after], by) if alone.factor > _UNLIKE * together.factor else together
