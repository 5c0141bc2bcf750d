"""A against A: what the same thing differs by when it is simply run again.

A process has luck of its own: where its memory lies, which cores and clocks it gets. Blocks within one process never
show that, so it is learnt from arms that were run more than once, and added to every interval. A few trials tell little
about a spread; what any machine does is therefore held as if four more had shown it already, or fewer where the trials
say otherwise: two shared cores were seen to run the same script six times slower than another time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.experiment.statistics.rates import common_unit, keep_measured
from flatout.experiment.statistics.resampling import errors, log_seconds
from flatout.records.proof import By, Spread
from flatout.records.trial import Trial

# What processes differ by on any machine, and how many trials that is worth.
EXPECTED = 0.01
_WEIGHT = 4.0
# Within one process arms that take turns share their luck; what is left is what a turn does to the next.
IN_TURNS = Spread(expected=0.002, factor=1.0, weight=8.0, typical=0.002, trials=0)
# An arm whose own trials scatter by so many times the variance of all the others is not like them.
_UNLIKE = 10.0
# Degrees of freedom from which some arms alone tell what they differ by.
_KNOWN_BY = 2


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Of one arm's trials about their mean: squares in units of what was expected, and their degrees of freedom."""

    squares: float
    freedom: int
    expected_variance: float


def calibrate(arms: Sequence[Sequence[Trial]], by: By = "blocks") -> Spread:
    """From the trials of each arm. Give every arm that was run, once; those of one trial are left aside."""
    return _spread([_scatter(trials, by) for trials in arms])


def calibrate_near(near: Sequence[Sequence[Trial]], all_arms: Sequence[Sequence[Trial]], by: By = "blocks") -> Spread:
    """By the arms that are like those to be judged, where they were run again often enough; else by all.

    A script whose batches come late differs from itself by what its loader does; once they come in time it does not.
    """
    return calibrate(near if is_known(near) else all_arms, by)


def is_known(arms: Sequence[Sequence[Trial]]) -> bool:
    """Whether they were run again often enough to tell by themselves what they differ by."""
    return sum(max(0, len(keep_measured(trials)) - 1) for trials in arms) >= _KNOWN_BY


def spreads(before: Sequence[Trial], arms: Sequence[Sequence[Trial]], by: By = "blocks") -> list[Spread]:
    """What to judge each arm by: all of them together, but one that scatters unlike the others by itself."""
    scatters = [_scatter(trials, by) for trials in (before, *arms)]
    unlike = [_is_unlike(scatters, place) for place in range(len(scatters))]
    together = _spread([scatter for scatter, is_unlike in zip(scatters, unlike, strict=True) if not is_unlike])
    return [
        _spread([scatters[0], scatters[place]]) if unlike[0] or unlike[place] else together
        for place in range(1, len(scatters))
    ]


def _scatter(trials: Sequence[Trial], by: By) -> _Scatter:
    trials = keep_measured(trials)
    if len(trials) < 2:
        return _Scatter(0.0, 0, EXPECTED**2)
    unit = common_unit(trials)
    logs = np.array([log_seconds(trial, unit, by) for trial in trials])
    variance = EXPECTED**2 + float(np.mean([np.var(errors(trial, unit, by)) for trial in trials]))
    return _Scatter(float(np.sum((logs - logs.mean()) ** 2)) / variance, len(trials) - 1, variance)


def _is_unlike(scatters: Sequence[_Scatter], place: int) -> bool:
    own = scatters[place]
    rest = _spread([*scatters[:place], *scatters[place + 1 :]])
    return bool(rest.trials and own.freedom) and own.squares / own.freedom > _UNLIKE * max(1.0, rest.factor)


def _spread(scatters: Sequence[_Scatter]) -> Spread:
    repeated = [scatter for scatter in scatters if scatter.freedom]
    squares = sum(scatter.squares for scatter in repeated)
    freedom = sum(scatter.freedom for scatter in repeated)
    # What was assumed counts the less the more the trials contradict it: on a busy machine only they know.
    assumed = _WEIGHT / max(1.0, squares / freedom) if freedom else _WEIGHT
    weight = assumed + freedom
    factor = (assumed + squares) / weight
    variances = [scatter.expected_variance for scatter in repeated] or [EXPECTED**2]
    typical = math.sqrt(factor * float(np.mean(variances)))
    return Spread(EXPECTED, factor, weight, typical, sum(scatter.freedom + 1 for scatter in repeated))
