"""How fast one trial was: seconds a sample, in blocks of about ten steps.

Batches of different size compare by samples. Where a trial does not know its samples, steps have to do.

The rate by blocks is that of the training itself: without the time in evaluations and checkpoints, of which a faster
arm has more in as long a trial, and without other rare long steps. It is the mean of the middle half of the blocks,
which a stretch of bad luck does not move and which is surer than their median. Where long steps are many, or come at a
steady beat and take a good part of the time, they are no exception: so are the bursts of a loader that cannot keep up.
A block would hold one burst or two, and the middle half only one kind; such a trial has its rate by the sum of them.
Where steps differ by much and mostly by their place in a beat, as in short epochs whose first batch is waited for, the
sum is over whole beats.

The rate by total counts all the time there was; where evaluations or checkpoints come at a steady beat, from the end
of the first to the end of the last, so that there is none too many and none too few in it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flatout.experiment.statistics.beats import Beat, Floats, beat_of, has_beat, kept_of, whole, without_rare
from flatout.records.proof import By, Rate, Unit
from flatout.records.trial import Trial

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
    """Those that ended well and have steps enough for a rate."""
    return [
        trial for trial in trials if trial.ended_well and len(trial.step_s) >= FEWEST_STEPS and max(trial.step_s) > 0
    ]


def common_unit(trials: Sequence[Trial]) -> Unit:
    return "sample" if all(_knows_samples(trial) for trial in trials) else "step"


def rate(trial: Trial, unit: Unit | None = None, by: By = "blocks") -> Rate:
    unit = unit or common_unit([trial])
    part = whole_beats(trial) if by == "total" else slice(None)
    seconds = step_seconds(trial)[part] if by == "total" else ordinary(trial)
    beat = own_beat(trial, seconds) if by == "blocks" else None
    counted = beat.whole if beat else slice(None)
    blocks = blocks_of(seconds[counted], units_of(trial, unit)[part][counted])
    if by == "total" or beat or is_uneven(seconds):
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


def whole_beats(trial: Trial) -> slice:
    """The steps from one pause to another; all of them where pauses have no beat."""
    paused = pause_seconds(trial) > 0
    places = np.flatnonzero(paused)
    return slice(int(places[0]) + 1, int(places[-1]) + 1) if has_beat(paused) else slice(None)


def ordinary(trial: Trial) -> Floats:
    """The seconds of each step without its pauses, and without what is long but rare."""
    seconds = step_seconds(trial)
    return without_rare(np.maximum(seconds - pause_seconds(trial), 1e-3 * seconds), trial.beat)


def own_beat(trial: Trial, ordinary: Floats) -> Beat | None:
    return whole(ordinary, trial.beat) if trial.beat else beat_of(ordinary)


def count_alike(trials: Sequence[Trial], others: Sequence[Trial]) -> list[Trial]:
    """The same, with long steps at a beat that any of the others keeps counted in them as well.

    By itself each trial says whether its long steps are exceptions. Of two with the same ones a hair apart, one would
    be counted with them and one without: a difference that nothing has made.
    """
    beats = {beat.steps for one in others if one.step_s and (beat := beat_of(ordinary(one)))}
    return [_with_beat(trial, beats) if trial.step_s else trial for trial in trials]


def _with_beat(trial: Trial, beats: Collection[int]) -> Trial:
    seconds, counted = step_seconds(trial) - pause_seconds(trial), ordinary(trial)
    if not beats or np.allclose(seconds, counted) or beat_of(counted) is not None:
        return trial
    return replace(trial, beat=kept_of(beats, seconds))


def without_pauses(trial: Trial) -> Trial:
    """The same as if nothing but training had happened in it."""
    return replace(trial, step_s=tuple(ordinary(trial).tolist()), pause_s=())


def even_out_steps(arms: Sequence[Sequence[Trial]]) -> list[list[Trial]]:
    """The same with ordinary steps as long in all of them: what is left to differ by are the long ones.

    A process that is slow in every step says nothing of pauses by that. Only for what changes nothing but pauses.
    """
    usual = [[_usual_seconds(trial) for trial in arm] for arm in arms]
    common = math.exp(float(np.mean([math.log(one) for arm in usual for one in arm if one > 0] or [0.0])))
    return [
        [_scaled(trial, common / one) if one > 0 else trial for trial, one in zip(arm, medians, strict=True)]
        for arm, medians in zip(arms, usual, strict=True)
    ]


def _usual_seconds(trial: Trial) -> float:
    return float(np.median(step_seconds(trial) - pause_seconds(trial))) if trial.step_s else 0.0


def _scaled(trial: Trial, factor: float) -> Trial:
    return replace(
        trial,
        step_s=tuple(factor * one for one in trial.step_s),
        pause_s=tuple(factor * one for one in trial.pause_s),
    )


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
