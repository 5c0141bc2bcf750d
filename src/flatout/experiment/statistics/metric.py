"""The user's own metric: did it stay within what the script itself gives from one run to the next?

A faster script gets further in the same time, so trials are compared where all of them have printed it as many times.
Only a change for the worse counts against a remedy. With few runs the metric's spread is hardly known, and the limit is
wide accordingly (Student's t); what it could not have shown is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from flatout.experiment.statistics.student import quantile
from flatout.records.message import Message, message
from flatout.records.proof import MetricVerdict
from flatout.records.trial import Trial

Verdict = Literal["inside", "worse", "not verified"]
_CONFIDENCE = 0.95
# Of the metric's size: if no smaller loss could have been seen, nothing was verified.
RESOLUTION = 0.10


def judge_metric(
    yardsticks: Sequence[Trial], changed: Sequence[Trial], *, higher_is_better: bool, allowed: float = 0.0
) -> MetricVerdict:
    """`yardsticks` are trials of the script as it is; `allowed` is what the user gives away for speed, in its unit."""
    times = _common([*yardsticks, *changed])
    values = _values(yardsticks, times), _values(changed, times)
    if not all(values):
        return MetricVerdict("not verified", message("metric.none_with_it" if values[0] else "metric.none"))
    before, after = (float(np.mean(of_arm)) for of_arm in values)
    if not math.isfinite(before):
        return MetricVerdict("not verified", message("metric.baseline_not_finite", before=before), before, after)
    if not math.isfinite(after):
        return MetricVerdict("worse", message("metric.not_finite", before=before, after=after), before, after)
    loss = before - after if higher_is_better else after - before
    verdict, sentence, limit = _judge(*values, loss, allowed)
    return MetricVerdict(verdict, sentence, before, after, limit)


def _judge(
    before: Sequence[float], after: Sequence[float], loss: float, allowed: float
) -> tuple[Verdict, Message, float | None]:
    """The verdict, the sentence, and the loss that could not have been seen."""
    means = {"before": float(np.mean(before)), "after": float(np.mean(after))}
    if len(before) < 2:
        return "not verified", message("metric.run_once", **means), None
    if len({*before, *after}) == 1:
        return "inside", message("metric.always", before=means["before"]), 0.0
    limit = _limit(before, len(after))
    if not limit and loss > allowed:
        return "not verified", message("metric.no_spread", **means), None
    if loss > max(limit, allowed):
        return "worse", message("metric.worse", **means, loss=loss, limit=limit), limit
    if limit > max(RESOLUTION * abs(means["before"]), allowed):
        return "not verified", message("metric.varies_too_much", **means, limit=limit), limit
    return "inside", message("metric.inside", **means, limit=limit), limit


def _common(trials: Sequence[Trial]) -> int:
    """How many times all that have printed it have; 0 where only the last value is known of one."""
    return min((len(trial.metrics) for trial in trials if trial.metric is not None), default=0)


def _values(trials: Sequence[Trial], times: int) -> list[float]:
    return [trial.metrics[times - 1] if times else trial.metric for trial in trials if trial.metric is not None]


def _limit(before: Sequence[float], after: int) -> float:
    """How far the means of that many runs of the same script get apart."""
    chance = quantile(_CONFIDENCE, len(before) - 1)
    return chance * float(np.std(before, ddof=1)) * math.sqrt(1.0 / len(before) + 1.0 / after)
