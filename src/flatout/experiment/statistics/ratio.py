"""The gain of one arm over another, from trials that took turns (A B B A …).

Rates are compared by their logarithms, so that twice as fast and half as fast are equally far. The interval is drawn
on two levels: within each trial its blocks, and over these what processes differ by. Drawing two or three trials from
among themselves would say next to nothing of the second, so that level is drawn from the calibrated spread, whose own
uncertainty is drawn with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flatout.experiment.statistics.beats import Floats
from flatout.experiment.statistics.calibration import calibrate
from flatout.experiment.statistics.rates import common_unit, keep_measured, step_seconds
from flatout.experiment.statistics.resampling import errors, log_seconds, seeded
from flatout.records.message import Message, message
from flatout.records.proof import By, MeasuredGain, Spread, Unit
from flatout.records.trial import Trial

CONFIDENCE = 0.95
_DRAWS = 20_000
MOST = math.log(1e8)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`draws` are logarithms of what the gain may be; `mid` is the one that was measured."""

    mid: float
    draws: Floats
    unit: Unit
    by: By
    trials: tuple[int, int]

    def at(self, confidence: float = CONFIDENCE) -> MeasuredGain:
        tail = (1.0 - confidence) / 2.0
        low, high = (float(bound) for bound in np.quantile(self.draws, [tail, 1.0 - tail]))
        # Beyond a factor of a hundred million either way nothing was measured, and numbers end there soon.
        low, high = max(-MOST, min(low, self.mid)), min(MOST, max(high, self.mid))
        return MeasuredGain(
            math.exp(low), math.exp(self.mid), math.exp(high), confidence, self.unit, self.by, self.trials
        )

    def chance_below(self, gain: float) -> float:
        return float(np.mean(self.draws <= math.log(gain)))


def compare_arms(
    before: Sequence[Trial], after: Sequence[Trial], spread: Spread | None = None, by: By = "blocks"
) -> Comparison | None:
    """`after` over `before`; None where either has no measured trial. Without a spread their own trials have to do."""
    arms = (keep_measured(before), keep_measured(after))
    if not all(arms):
        return None
    unit = common_unit([*arms[0], *arms[1]])
    spread = spread or calibrate(arms, by)
    draw = seeded(*(step_seconds(trial) for arm in arms for trial in arm))
    slower, faster = (float(np.mean([log_seconds(trial, unit, by) for trial in arm])) for arm in arms)
    off = _scale(spread, draw) * sum((_arm_errors(arm, unit, by, spread, draw) for arm in arms), np.zeros(_DRAWS))
    mid = slower - faster
    return Comparison(mid, mid + off, unit, by, (len(arms[0]), len(arms[1])))


def measure_gain(
    before: Sequence[Trial],
    after: Sequence[Trial],
    spread: Spread | None = None,
    by: By = "blocks",
    confidence: float = CONFIDENCE,
) -> MeasuredGain | None:
    found = compare_arms(before, after, spread, by)
    return found.at(confidence) if found is not None else None


def interval_of_arm(arm: Sequence[Trial], unit: Unit, by: By, spread: Spread) -> tuple[float, float]:
    """What the mean of one arm's `log_seconds` may be off by."""
    draw = seeded(*map(step_seconds, arm))
    off = _scale(spread, draw) * _arm_errors(arm, unit, by, spread, draw)
    low, high = np.quantile(off, [(1.0 - CONFIDENCE) / 2, (1.0 + CONFIDENCE) / 2])
    return float(low), float(high)


def _scale(spread: Spread, draw: np.random.Generator) -> Floats:
    """The spread is known from few trials: it may be more, or less."""
    return np.asarray(np.sqrt(spread.factor * spread.weight / draw.chisquare(spread.weight, _DRAWS)))


def _arm_errors(arm: Sequence[Trial], unit: Unit, by: By, spread: Spread, draw: np.random.Generator) -> Floats:
    """What the mean of an arm's trials may be off by; both levels, before the spread's factor.

    A trial with calmer steps than those of the calibration is not one with better luck: it gets their variance too.
    """
    usual = spread.typical**2 / spread.factor
    total = np.zeros(_DRAWS)
    for trial in arm:
        within = errors(trial, unit, by)
        luck = math.sqrt(max(spread.expected**2, usual - float(np.var(within))))
        total += draw.choice(within, _DRAWS) + draw.normal(0.0, luck, _DRAWS)
    return total / len(arm)


# Gains as facts that a person will read.


def percent(ratio: float) -> Message:
    """1.051 → +5.1%; what is more than twice is easier to read as ×2.3."""
    return message("gain.times", ratio=ratio) if ratio >= 2.0 else message("gain.percent", percent=100 * (ratio - 1))


def with_interval(gain: MeasuredGain) -> Message:
    return message("gain.with_interval", mid=percent(gain.mid), low=percent(gain.low), high=percent(gain.high))
