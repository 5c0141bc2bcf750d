"""Medians, bootstrap intervals and paired differences. Pure functions of their arguments; randomness is seeded."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with its 95% bootstrap interval and the range of the rounds it came from."""

    mid: float
    low: float
    high: float
    smallest: float
    largest: float
    rounds: int


def estimate(values: Sequence[float], resamples: int = 2000, seed: int = 0) -> Estimate:
    """The median of `values` and how sure it is: percentiles of the medians of resampled rounds."""
    assert values, "nothing to estimate from"
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(resamples))
    return Estimate(
        mid=statistics.median(values),
        low=medians[int(0.025 * resamples)],
        high=medians[int(0.975 * resamples) - 1],
        smallest=min(values),
        largest=max(values),
        rounds=len(values),
    )


def added(arm: Sequence[float], base: Sequence[float]) -> Estimate:
    """What `arm` costs more than `base`, paired round by round so that drift of the machine cancels."""
    return estimate([a - b for a, b in zip(arm, base, strict=True)])


def added_percent(arm: Sequence[float], base: Sequence[float]) -> Estimate:
    """The same as a percentage of the base."""
    return estimate([100.0 * (a / b - 1.0) for a, b in zip(arm, base, strict=True)])


def slope_per_item(values: Sequence[float]) -> float:
    """Least-squares slope of `values` over their index: growth per sample."""
    n = len(values)
    if n < 2:
        return 0.0
    middle = (n - 1) / 2
    mean = sum(values) / n
    covariance = sum((i - middle) * (v - mean) for i, v in enumerate(values))
    return covariance / sum((i - middle) ** 2 for i in range(n))
