"""The user's own metric: did it stay within what the script itself gives from one run to the next?

A faster script gets further in the same time, so trials are compared where all of them have printed it as many times.
Only a change for the worse counts against a remedy. With few runs the metric's spread is hardly known, and the limit is
wide accordingly (Student's t); what it could not have shown is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flatout.experiment.statistics.student import quantile
from flatout.records.proof import MetricVerdict
from flatout.records.trial import Trial

_CONFIDENCE = 0.95
# Of the metric's size: if no smaller loss could have been seen, nothing was verified.
RESOLUTION = 0.10


def judge_metric(
    yardsticks: Sequence[Trial], changed: Sequence[Trial], *, higher_is_better: bool, allowed: float = 0.0
) -> MetricVerdict:
    """`yardsticks` are trials of the script as it is; `allowed` is what the user gives away for speed, in its unit."""
    times = _common([*yardsticks, *changed])
    before, after = _values(yardsticks, times), _values(changed, times)
    if not before or not after:
        which = "the script as it is" if not before else "the script with it"
        return MetricVerdict("not verified", f"no trial of {which} has the metric")
    usual, now = float(np.mean(before)), float(np.mean(after))
    if not math.isfinite(usual):
        return MetricVerdict("not verified", f"the metric of the script as it is is {usual}", usual, now)
    if not math.isfinite(now):
        return MetricVerdict("worse", f"the metric is {now}, and {usual:.6g} as it is", usual, now)
    loss = usual - now if higher_is_better else now - usual
    return _judged(before, after, usual, now, loss, allowed)


def _judged(
    before: Sequence[float], after: Sequence[float], usual: float, now: float, loss: float, allowed: float
) -> MetricVerdict:
    figures = f"{usual:.6g} as it is, {now:.6g} with it"
    if len(before) < 2:
        return MetricVerdict("not verified", f"{figures}; what it varies by takes a second run to know", usual, now)
    if len({*before, *after}) == 1:
        return MetricVerdict("inside", f"always {usual:.6g}", usual, now, 0.0)
    limit = _limit(before, len(after))
    if not limit and loss > allowed:
        sentence = f"{figures}; the script always gives the same, so there is nothing to judge a difference by"
        return MetricVerdict("not verified", sentence, usual, now)
    if loss > max(limit, allowed):
        sentence = f"{figures}: worse by {loss:.3g}, where the script itself varies by {limit:.3g}"
        return MetricVerdict("worse", sentence, usual, now, limit)
    unseen = f"a loss of less than {limit:.3g} could not have been seen"
    if limit > max(RESOLUTION * abs(usual), allowed):
        return MetricVerdict("not verified", f"{figures}; the script varies too much: {unseen}", usual, now, limit)
    return MetricVerdict("inside", f"{figures}; {unseen}", usual, now, limit)


def _common(trials: Sequence[Trial]) -> int:
    """How many times all that have printed it have; 0 where only the last value is known of one."""
    return min((len(trial.metrics) for trial in trials if trial.metric is not None), default=0)


def _values(trials: Sequence[Trial], times: int) -> list[float]:
    return [trial.metrics[times - 1] if times else trial.metric for trial in trials if trial.metric is not None]


def _limit(before: Sequence[float], after: int) -> float:
    """How far the means of that many runs of the same script get apart."""
    chance = quantile(_CONFIDENCE, len(before) - 1)
    return chance * float(np.std(before, ddof=1)) * math.sqrt(1.0 / len(before) + 1.0 / after)
