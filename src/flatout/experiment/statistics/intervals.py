"""The gain of one arm over another with its interval, from trials that took turns (A B B A …).

Rates are compared by their logarithms, so that twice as fast and half as fast are equally far. The interval is drawn on
two levels: the blocks within each trial, and over these what processes differ by. Two or three trials drawn from among
themselves would say next to nothing of the second level, so it is drawn from the calibrated spread, whose own
uncertainty is drawn with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from flatout.experiment.statistics.rates import (
    Blocks,
    Floats,
    Period,
    between_pauses,
    block_count,
    blocks_of,
    common_unit,
    is_long,
    is_regular,
    is_uneven,
    keep_measured,
    middle,
    ordinary,
    pause_seconds,
    period_of,
    rate,
    step_seconds,
    units_of,
)
from flatout.records.message import Message, message
from flatout.records.proof import By, MeasuredGain, Spread, Unit
from flatout.records.trial import Trial

_GRID = 20_001


@lru_cache(maxsize=256)
def student_quantile(probability: float, freedom: float) -> float:
    """The t with `freedom` degrees of freedom that is exceeded with 1 - `probability`; for those from 0.5 up.

    With t = √freedom · tan(angle) its density is a power of the cosine, which sums up well on an even grid.
    """
    assert 0.5 <= probability < 1.0 and freedom > 0
    angles = np.linspace(0.0, np.pi / 2, _GRID)
    middles = (angles[1:] + angles[:-1]) / 2
    mass = np.concatenate([[0.0], np.cumsum(np.cos(middles) ** (freedom - 1.0))])
    angle = float(np.interp(2.0 * probability - 1.0, mass / mass[-1], angles))
    return float(freedom**0.5 * np.tan(angle))


# How surely one trial knows its own rate: its blocks resampled. Neighbouring blocks are alike (clocks, caches and other
# users of the machine change slowly), so they are drawn in runs of neighbours. Few runs of few blocks look more alike
# than they are; that is corrected. Where steps are periodic the runs are whole periods: only what is not regular in
# them makes runs differ.

_RESAMPLES = 1000


def seeded(*arrays: Floats) -> np.random.Generator:
    """The same measurements give the same draws, and so the same verdict."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(array.tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest(), "little"))


def log_seconds(trial: Trial, unit: Unit, by: By) -> float:
    return float(np.log(rate(trial, unit, by).seconds))


@dataclass(frozen=True, slots=True)
class _Timing:
    """What is known of a trial's time: of each step, and of the pauses apart."""

    step_s: tuple[float, ...]
    units: tuple[float, ...]
    pause_s: tuple[float, ...]
    by: By
    has_regular_pauses: bool
    period: int | None


def errors(trial: Trial, unit: Unit, by: By) -> Floats:
    """Draws of what `log_seconds` may be off by, for all that happened within this one process."""
    part = between_pauses(trial) if by == "total" else slice(None)
    pauses = pause_seconds(trial)[part] if by == "total" else np.zeros(0)
    seconds = step_seconds(trial)[part] - pauses if by == "total" else ordinary(trial)
    step_s, units, pause_s = (tuple(values.tolist()) for values in (seconds, units_of(trial, unit)[part], pauses))
    known = trial.period if by == "blocks" else None
    return _errors(_Timing(step_s, units, pause_s, by, part != slice(None), known))


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _errors(timing: _Timing) -> Floats:
    seconds, units, pauses = (
        np.asarray(values, dtype=np.float64) for values in (timing.step_s, timing.units, timing.pause_s)
    )
    draw = seeded(seconds, units)
    period = period_of(seconds, timing.period)
    if timing.by == "total" or period is not None or is_uneven(seconds):
        by_periods = _by_periods(seconds, units, period, timing.by, draw) if period is not None else None
        sums, widen = by_periods or _by_chance(seconds, units, draw)
        # Apart: pauses have a period of their own.
        extra_s = _extra_seconds(pauses[pauses > 0], timing.has_regular_pauses, draw)
        drawn = np.log((sums.seconds + extra_s) / sums.units) * widen
    else:
        drawn = _middles(seconds, units, draw)
    off: Floats = drawn - np.median(drawn)
    off.setflags(write=False)
    return off


def _middles(seconds: Floats, units: Floats, draw: np.random.Generator) -> Floats:
    blocks = blocks_of(seconds, units)
    picked, widen = _runs(len(blocks.seconds), draw)
    drawn: Floats = np.log(middle(blocks.seconds_per_unit[picked]))
    return drawn * widen


def _by_chance(seconds: Floats, units: Floats, draw: np.random.Generator) -> tuple[Blocks, float]:
    """Ordinary blocks, and apart from them the extra time of long steps."""
    long = is_long(seconds)
    blocks = blocks_of(np.where(long, np.median(seconds), seconds), units)
    picked, widen = _runs(len(blocks.seconds), draw)
    extra_s = _extra_seconds(seconds[long] - np.median(seconds), is_regular(long), draw)
    return Blocks(blocks.seconds[picked].sum(axis=1) + extra_s, blocks.units[picked].sum(axis=1)), widen


def _by_periods(
    seconds: Floats, units: Floats, period: Period, by: By, draw: np.random.Generator
) -> tuple[Blocks, float] | None:
    """Runs of whole periods, each begun at any step: a period that slips has them differ. None where one is empty.

    They are as long as runs of blocks would be, since neighbours are alike for as long. A total has more steps than
    whole periods; the rest is drawn from any place of one.
    """
    wholes = (seconds[period.whole], units[period.whole])
    if any(_windows(values, period.steps).min() <= 0 for values in wholes):
        return None
    places = len(wholes[0])
    count = len(seconds) if by == "total" else places
    periods = max(1, round(places / block_count(places) / period.steps))
    length, widen = _run(places // (periods * period.steps))
    steps = length * periods * period.steps
    starts = draw.integers(0, places, (_RESAMPLES, count // steps + 1))
    sums = [
        _windows(values, steps)[starts[:, 1:]].sum(axis=1) + _windows(values, count % steps)[starts[:, 0]]
        for values in wholes
    ]
    return Blocks(*sums), widen


def _windows(values: Floats, steps: int) -> Floats:
    """The sums of so many neighbours, from each place on; the last has the first for a neighbour."""
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[:steps])))))
    return np.asarray(sums[steps : steps + len(values)] - sums[: len(values)])


def _extra_seconds(extra: Floats, is_regular: bool, draw: np.random.Generator) -> Floats:
    """How many fell into the trial is known to half a one where they are regular, else as chance has it."""
    count = len(extra)
    if not count:
        return np.zeros(_RESAMPLES)
    drawn = count + draw.uniform(-0.5, 0.5, _RESAMPLES) if is_regular else draw.poisson(count, _RESAMPLES)
    means = draw.choice(extra, (_RESAMPLES, count)).mean(axis=1)
    return np.asarray(drawn * means, dtype=np.float64)


def _runs(count: int, draw: np.random.Generator) -> tuple[NDArray[np.intp], float]:
    """Which blocks each draw takes, and what to widen the outcome by."""
    length, widen = _run(count)
    needed = -(-count // length)
    starts = draw.integers(0, count, (_RESAMPLES, needed, 1))
    picked = (starts + np.arange(length)) % count
    return picked.reshape(_RESAMPLES, -1)[:, :count], widen


def _run(count: int) -> tuple[int, float]:
    """How many neighbours of so many blocks to draw at once, and what to widen the outcome by."""
    length = max(1, round(count ** (1 / 3)))
    return length, (count / max(1, count - length)) ** 0.5


# A against A: what the same thing differs by when it is simply run again. A process has luck of its own: where its
# memory lies, which cores and clocks it gets. Blocks within one process never show that, so it is learnt from arms that
# were run more than once, and added to every interval. A few trials tell little about a spread, so what any machine
# does counts as if four more had shown it already, or fewer where the trials say otherwise: two shared cores were seen
# to run the same script six times slower than another time.

# What processes differ by on any machine, and how many trials that is worth.
EXPECTED = 0.01
_WEIGHT = 4.0
# Within one process arms that take turns share their luck; what is left is what a turn does to the next.
IN_TURNS = Spread(expected=0.002, factor=1.0, weight=8.0, typical=0.002, trials=0)
# Degrees of freedom from which some arms alone tell what they differ by.
_KNOWN_BY = 2


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Of one arm's trials about their mean: squares in units of what was expected, and their degrees of freedom."""

    squares: float
    freedom: int
    expected_variance: float


def calibrate(arms: Sequence[Sequence[Trial]], by: By = "blocks") -> Spread:
    """From the trials of each arm that was run more than once."""
    repeated = [scatter for scatter in (_scatter(trials, by) for trials in arms) if scatter.freedom]
    squares = sum(scatter.squares for scatter in repeated)
    freedom = sum(scatter.freedom for scatter in repeated)
    # What was assumed counts the less the more the trials contradict it: on a busy machine only they know.
    assumed = _WEIGHT / max(1.0, squares / freedom) if freedom else _WEIGHT
    weight = assumed + freedom
    factor = (assumed + squares) / weight
    variances = [scatter.expected_variance for scatter in repeated] or [EXPECTED**2]
    typical = math.sqrt(factor * float(np.mean(variances)))
    return Spread(EXPECTED, factor, weight, typical, sum(scatter.freedom + 1 for scatter in repeated))


def calibrate_near(near: Sequence[Sequence[Trial]], all_arms: Sequence[Sequence[Trial]], by: By = "blocks") -> Spread:
    """By arms like those to be judged where they were repeated often enough; a late loader adds a spread of its own."""
    return calibrate(near if is_known(near) else all_arms, by)


def is_known(arms: Sequence[Sequence[Trial]]) -> bool:
    """Whether they were run again often enough to tell by themselves what they differ by."""
    return sum(max(0, len(keep_measured(trials)) - 1) for trials in arms) >= _KNOWN_BY


def _scatter(trials: Sequence[Trial], by: By) -> _Scatter:
    trials = keep_measured(trials)
    if len(trials) < 2:
        return _Scatter(0.0, 0, EXPECTED**2)
    unit = common_unit(trials)
    logs = np.array([log_seconds(trial, unit, by) for trial in trials])
    variance = EXPECTED**2 + float(np.mean([np.var(errors(trial, unit, by)) for trial in trials]))
    return _Scatter(float(np.sum((logs - logs.mean()) ** 2)) / variance, len(trials) - 1, variance)


# The gain itself.

CONFIDENCE = 0.95
_DRAWS = 20_000
MOST = math.log(1e8)
# Of its time a trial has some left, or it would not have come to an end.
_MOST_LOST = 0.95


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
    return Comparison(mid, mid + off + _lost_to_others(arms, draw), unit, by, (len(arms[0]), len(arms[1])))


def _lost_to_others(arms: tuple[Sequence[Trial], Sequence[Trial]], draw: np.random.Generator) -> Floats:
    """What a gain may be off by because others disturbed one of its arms more than the other.

    Without them an arm would have taken no longer, and shorter by what they took at most; how much of that made its
    steps longer is not known. What trials of one arm differ by for that reason is in the spread already.
    """
    before, after = (float(np.mean([-math.log1p(-min(trial.lost_share, _MOST_LOST)) for trial in arm])) for arm in arms)
    return np.asarray(draw.uniform(0.0, 1.0, _DRAWS) * (after - before)) if before or after else np.zeros(_DRAWS)


def measure_gain(
    before: Sequence[Trial], after: Sequence[Trial], spread: Spread | None = None, by: By = "blocks"
) -> MeasuredGain | None:
    found = compare_arms(before, after, spread, by)
    return found.at() if found is not None else None


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
    """What an arm's mean may be off by, before the spread's factor. A calm trial gets the usual variance too."""
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
