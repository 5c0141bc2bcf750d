"""How fast one trial was: seconds a sample, in blocks of about ten steps; steps where samples are not known.

The rate by blocks is that of the training itself: without evaluations and checkpoints, of which a faster arm has more
in as long a trial, and without other rare long steps. It is the mean of the middle half of the blocks, which bad luck
does not move and which is more precise than their median. Long steps that are many, or regular and a good part of the
time (bursts of a loader that cannot keep up), are no exceptions: the middle half would hold only one kind of block, so
such a trial has its rate by the sum. Where steps are periodic, as in short epochs whose first batch is waited for, the
sum is over whole periods.

The rate by total counts all the time there was; where evaluations or checkpoints are regular, from the end of the
first to the end of the last, so that there is none too many and none too few in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flatout.records.proof import By, Rate, Unit
from flatout.records.trial import Trial

Floats = NDArray[np.float64]

# With fewer there is no telling how much they vary.
FEWEST_STEPS = 4
_BLOCK = 10
_FEWEST_BLOCKS = 8
_MOST_BLOCKS = 60
_UNEVEN = 0.10


@dataclass(frozen=True, slots=True)
class Blocks:
    """Seconds and units (samples or steps) of each block."""

    seconds: Floats
    units: Floats

    @property
    def seconds_per_unit(self) -> Floats:
        return self.seconds / self.units


def keep_measured(trials: Sequence[Trial]) -> list[Trial]:
    """Those of one arm that ended well and have steps enough for a rate; of these the undisturbed, if there are any."""
    measured = [
        trial for trial in trials if trial.ended_well and len(trial.step_s) >= FEWEST_STEPS and max(trial.step_s) > 0
    ]
    return [trial for trial in measured if not trial.is_disturbed] or measured


def common_unit(trials: Sequence[Trial]) -> Unit:
    return "sample" if all(_knows_samples(trial) for trial in trials) else "step"


def rate(trial: Trial, unit: Unit | None = None, by: By = "blocks") -> Rate:
    unit = unit or common_unit([trial])
    part = between_pauses(trial) if by == "total" else slice(None)
    seconds = step_seconds(trial)[part] if by == "total" else ordinary(trial)
    period = period_of(seconds, trial.period) if by == "blocks" else None
    counted = period.whole if period else slice(None)
    blocks = blocks_of(seconds[counted], units_of(trial, unit)[part][counted])
    if by == "total" or period or is_uneven(seconds):
        return Rate(float(blocks.seconds.sum() / blocks.units.sum()), unit, by, len(blocks.seconds))
    return Rate(float(middle(blocks.seconds_per_unit)), unit, by, len(blocks.seconds))


def arm_per_s(trials: Sequence[Trial], unit: Unit, by: By = "blocks") -> float:
    """One figure for several trials: the geometric mean, which is what gains compare."""
    return math.exp(float(np.mean([math.log(rate(trial, unit, by).per_s) for trial in trials])))


def step_seconds(trial: Trial) -> Floats:
    return np.asarray(trial.step_s, dtype=np.float64)


def pause_seconds(trial: Trial) -> Floats:
    known = len(trial.pause_s) == len(trial.step_s)
    return np.asarray(trial.pause_s, dtype=np.float64) if known else np.zeros(len(trial.step_s))


def between_pauses(trial: Trial) -> slice:
    """The steps from the first pause to the last; all of them where pauses are not regular."""
    paused = pause_seconds(trial) > 0
    places = np.flatnonzero(paused)
    return slice(int(places[0]) + 1, int(places[-1]) + 1) if is_regular(paused) else slice(None)


def ordinary(trial: Trial) -> Floats:
    """The seconds of each step without its pauses, and without what is long but rare."""
    seconds = step_seconds(trial)
    return without_rare(np.maximum(seconds - pause_seconds(trial), 1e-3 * seconds), trial.period)


def count_alike(trials: Sequence[Trial], others: Sequence[Trial]) -> list[Trial]:
    """The same trials, with long steps counted in all of them where they have a period in any of the others.

    Each trial judges by itself whether its long steps are exceptions. Of two that hardly differ, one would be counted
    with them and one without.
    """
    periods = {period.steps for other in others if other.step_s and (period := find_period(ordinary(other)))}
    return [_with_period(trial, periods) if trial.step_s else trial for trial in trials]


def _with_period(trial: Trial, periods: Collection[int]) -> Trial:
    seconds, counted = step_seconds(trial) - pause_seconds(trial), ordinary(trial)
    if not periods or np.allclose(seconds, counted) or find_period(counted) is not None:
        return trial
    return replace(trial, period=_match_period(periods, seconds))


def without_pauses(trial: Trial) -> Trial:
    """The same as if nothing but training had happened in it."""
    return replace(trial, step_s=tuple(ordinary(trial).tolist()), pause_s=())


def even_out_steps(arms: Sequence[Sequence[Trial]]) -> list[list[Trial]]:
    """The same with ordinary steps as long in all: only for what changes nothing but pauses."""
    usual = [[_usual_seconds(trial) for trial in arm] for arm in arms]
    common = math.exp(float(np.mean([math.log(median) for arm in usual for median in arm if median > 0] or [0.0])))
    return [
        [_scaled(trial, common / median) if median > 0 else trial for trial, median in zip(arm, medians, strict=True)]
        for arm, medians in zip(arms, usual, strict=True)
    ]


def _usual_seconds(trial: Trial) -> float:
    return float(np.median(step_seconds(trial) - pause_seconds(trial))) if trial.step_s else 0.0


def _scaled(trial: Trial, factor: float) -> Trial:
    step_s, pause_s = (tuple(factor * seconds for seconds in times) for times in (trial.step_s, trial.pause_s))
    return replace(trial, step_s=step_s, pause_s=pause_s)


def units_of(trial: Trial, unit: Unit) -> Floats:
    return np.asarray(trial.samples, dtype=np.float64) if unit == "sample" else np.ones(len(trial.step_s))


def blocks_of(seconds: Floats, units: Floats) -> Blocks:
    """About ten steps each; shorter in a short trial so that there are some, longer in a long one for speed."""
    starts = np.linspace(0, len(seconds), block_count(len(seconds)), endpoint=False).astype(np.intp)
    parts = Blocks(np.add.reduceat(seconds, starts), np.add.reduceat(units, starts))
    held = parts.units > 0  # steps that took no samples by themselves
    return Blocks(parts.seconds[held], parts.units[held])


def block_count(steps: int) -> int:
    blocks = steps // _BLOCK if steps >= _BLOCK * _FEWEST_BLOCKS else min(steps, _FEWEST_BLOCKS)
    return min(blocks, _MOST_BLOCKS)


def is_uneven(ordinary: Floats) -> bool:
    """Whether the middle half of the blocks would leave out a part of what makes them up."""
    return bool(np.mean(ordinary) > (1.0 + _UNEVEN) * np.median(ordinary))


def middle(blocks: Floats) -> Floats:
    """The mean of the middle half, along the last axis."""
    cut = blocks.shape[-1] // 4
    return np.asarray(np.sort(blocks, axis=-1)[..., cut : blocks.shape[-1] - cut].mean(axis=-1))


def _knows_samples(trial: Trial) -> bool:
    samples = trial.samples
    return (
        len(samples) == len(trial.step_s)
        and all(math.isfinite(count) and count >= 0 for count in samples)
        and sum(count > 0 for count in samples) * 2 > len(samples)
    )


# Long steps, and their period. Some are exceptions: an evaluation, a stall. Others are what the training is: where an
# epoch has eight steps and its first batch is waited for, every eighth step is long, and no rate is right without them.

_LONG = 4.0
# Long steps are rare if they are less than this part of all steps, and slight if of all the time.
_RARE = 0.05
_SLIGHT = 0.20
_STEADY = 1.5
_FEWEST_REGULAR = 3
# What a period has to explain of the variance of steps: two long steps, however far apart, look like one of 0.33.
_EXPLAINED = 0.35
# What it has to make steps differ by, as a share of their mean: less than that is evened out by blocks of ten.
_SWING = 0.25
_FEWEST_PERIODS = 4
# In steps; of longer ones a trial hardly has enough, and each that is looked for costs time.
_LONGEST_PERIOD = 500


@dataclass(frozen=True, slots=True)
class Period:
    """After how many steps the same comes again, and the steps of a trial that are whole periods."""

    steps: int
    whole: slice

    @classmethod
    def of(cls, seconds: Floats, steps: int) -> Period:
        """The first steps are nearest to the warm-up, so it is they that are left out."""
        return cls(steps, slice(len(seconds) % steps, None))


def is_long(seconds: Floats) -> NDArray[np.bool_]:
    """Steps with something in them that the others do not have: an evaluation, a checkpoint."""
    return seconds > _LONG * np.median(seconds)


def is_regular(long: NDArray[np.bool_]) -> bool:
    """Whether they come at equal distances."""
    gaps = np.diff(np.flatnonzero(long))
    return len(gaps) + 1 >= _FEWEST_REGULAR and bool(gaps.max() <= _STEADY * gaps.min())


def period_of(seconds: Floats, known: int | None) -> Period | None:
    """The one that is known of these steps, or else that they show by themselves."""
    return Period.of(seconds, known) if known else find_period(seconds)


def find_period(seconds: Floats) -> Period | None:
    """The period of these steps, if they differ by much and mostly by their place in it.

    It need not be exact: the rest of the variance is drawn with everything else. Two periods explain as much as one,
    so the shortest is taken that is nearly as good as the best.
    """
    return _find_period(seconds.tobytes())


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _find_period(step_s: bytes) -> Period | None:
    seconds = _capped(np.frombuffer(step_s))
    if np.std(seconds) <= _SWING * np.mean(seconds):
        return None
    longest = min(len(seconds) // _FEWEST_PERIODS, _LONGEST_PERIOD)
    shares = {steps: _explained_share(seconds, steps) for steps in range(2, longest + 1)}
    best = max(shares.values(), default=0.0)
    if best < _EXPLAINED or best * np.var(seconds) < (_SWING * np.mean(seconds)) ** 2:
        return None
    return Period.of(seconds, next(steps for steps, share in shares.items() if share > 0.9 * best))


def _match_period(periods: Iterable[int], seconds: Floats) -> int | None:
    """Which of the periods of other trials these steps have as well, if any."""
    capped = _capped(seconds)
    shares = {steps: _explained_share(capped, steps) for steps in periods if len(seconds) >= 2 * steps}
    best = max(shares, key=lambda steps: shares[steps], default=None)
    return best if best is not None and shares[best] >= _EXPLAINED else None


def _capped(seconds: Floats) -> Floats:
    """One stall would hide any period."""
    return np.asarray(np.minimum(seconds, 2.0 * _LONG * np.median(seconds)))


def _explained_share(seconds: Floats, period: int) -> float:
    """What the place in the period explains of the variance; about 0 where it is none, however long (adjusted R²)."""
    places = np.arange(len(seconds)) % period
    means = np.bincount(places, seconds) / np.bincount(places)
    left = np.sum((seconds - means[places]) ** 2) / (len(seconds) - period)
    return float(1.0 - left / np.var(seconds, ddof=1))


def without_rare(seconds: Floats, known: int | None = None) -> Floats:
    """Long steps made ordinary, if they are exceptions. Those of a period that is `known` are none."""
    median, period = np.full(len(seconds), np.median(seconds)), period_of(seconds, known)
    if period is None:
        return _without_long(seconds, median, _LONG * median)
    usual = np.resize([np.median(seconds[place :: period.steps]) for place in range(period.steps)], len(seconds))
    # Long every time at their places, as evaluations: those are exceptions if they are rare and slight.
    always = usual > _LONG * median
    made = np.where(always, median, seconds)
    if not known and 0.0 < always.mean() < _RARE and _is_slight(seconds, made):
        return without_rare(made)
    # A wait may be shared by two steps, or come a step late: it takes more to be an exception to a period.
    return _without_long(seconds, usual, np.maximum(_LONG * np.maximum(usual, median), 2.0 * usual.max()))


def _without_long(seconds: Floats, usual: Floats, limit: Floats) -> Floats:
    long = seconds > limit
    made = np.where(long, usual, seconds)
    return made if long.mean() < _RARE and (_is_slight(seconds, made) or not is_regular(long)) else seconds


def _is_slight(seconds: Floats, made: Floats) -> bool:
    return bool(made.sum() > (1.0 - _SLIGHT) * seconds.sum())
