"""Steps that are longer than the others, and the beat they come at.

Some are exceptions: an evaluation, a stall. Others are what the training is: where an epoch has eight steps and its
first batch is waited for, every eighth step is long, and no figure of that training is right without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_LONG = 4.0
# Long steps are rare if they are less than this part of all steps, and slight if of all the time.
_RARE = 0.05
_SLIGHT = 0.20
_STEADY = 1.5
_FEWEST_FOR_BEAT = 3
# What a beat has to tell of the variance of steps: two long steps, however far apart, look like one that tells 0.33.
_TOLD = 0.35
# What it has to make steps differ by, as a share of their mean: less than that is evened out by blocks of ten.
_SWING = 0.25
_FEWEST_BEATS = 4
# In steps; of longer ones a trial hardly has enough, and each that is looked for costs time.
_LONGEST_BEAT = 500


@dataclass(frozen=True, slots=True)
class Beat:
    """After how many steps the same comes again, and the steps of a trial that are whole beats of it."""

    steps: int
    whole: slice


def is_long(seconds: Floats) -> NDArray[np.bool_]:
    """Steps with something in them that the others do not have: an evaluation, a checkpoint."""
    return seconds > _LONG * np.median(seconds)


def has_beat(long: NDArray[np.bool_]) -> bool:
    """Whether they come at equal distances."""
    gaps = np.diff(np.flatnonzero(long))
    return len(gaps) + 1 >= _FEWEST_FOR_BEAT and bool(gaps.max() <= _STEADY * gaps.min())


def beat_of(seconds: Floats) -> Beat | None:
    """The beat that steps keep, if they differ by much and mostly by their place in it.

    It need not be exact: what it does not tell of them is drawn with the rest. Twice a beat tells as much as the beat
    itself, so the shortest is taken that is nearly as good as the best.
    """
    return _beat_of(seconds.tobytes())


@lru_cache(maxsize=256)  # one trial takes part in many comparisons
def _beat_of(step_s: bytes) -> Beat | None:
    seconds = np.frombuffer(step_s)
    seconds = np.minimum(seconds, 2.0 * _LONG * np.median(seconds))  # one stall would hide any beat
    if np.std(seconds) <= _SWING * np.mean(seconds):
        return None
    told = {steps: _told(seconds, steps) for steps in range(2, min(len(seconds) // _FEWEST_BEATS, _LONGEST_BEAT) + 1)}
    best = max(told.values(), default=0.0)
    if best < _TOLD or best * np.var(seconds) < (_SWING * np.mean(seconds)) ** 2:
        return None
    steps = next(steps for steps, share in told.items() if share > 0.9 * best)
    return whole(seconds, steps)


def kept_of(beats: Iterable[int], seconds: Floats) -> int | None:
    """Which of the beats that other trials of a script keep these steps keep as well, if any."""
    capped = np.minimum(seconds, 2.0 * _LONG * np.median(seconds))
    told = {steps: _told(capped, steps) for steps in beats if len(seconds) >= 2 * steps}
    best = max(told, key=lambda steps: told[steps], default=None)
    return best if best is not None and told[best] >= _TOLD else None


def whole(seconds: Floats, steps: int) -> Beat:
    """The first steps are those nearest to the warm-up, so it is they that are left out."""
    return Beat(steps, slice(len(seconds) % steps, None))


def _told(seconds: Floats, beat: int) -> float:
    """What the place in the beat tells of the variance; of a beat that is none about 0, however long (adjusted R²)."""
    places = np.arange(len(seconds)) % beat
    means = np.bincount(places, seconds) / np.bincount(places)
    left = np.sum((seconds - means[places]) ** 2) / (len(seconds) - beat)
    return float(1.0 - left / np.var(seconds, ddof=1))


def without_rare(seconds: Floats, known: int | None = None) -> Floats:
    """Long steps made ordinary, if they are exceptions. Those of a beat that is `known` are none."""
    median, beat = np.full(len(seconds), np.median(seconds)), whole(seconds, known) if known else beat_of(seconds)
    if beat is None:
        return _without_long(seconds, median, _LONG * median)
    usual = np.resize([np.median(seconds[place :: beat.steps]) for place in range(beat.steps)], len(seconds))
    # Long every time at their places, as evaluations: those are exceptions if they are rare and slight.
    always = usual > _LONG * median
    made = np.where(always, median, seconds)
    if not known and 0.0 < always.mean() < _RARE and _is_slight(seconds, made):
        return without_rare(made)
    # A wait of the beat may be shared by two steps, or come a step late: it takes more to be an exception to a beat.
    return _without_long(seconds, usual, np.maximum(_LONG * np.maximum(usual, median), 2.0 * usual.max()))


def _without_long(seconds: Floats, usual: Floats, limit: Floats) -> Floats:
    long = seconds > limit
    made = np.where(long, usual, seconds)
    return made if long.mean() < _RARE and (_is_slight(seconds, made) or not has_beat(long)) else seconds


def _is_slight(seconds: Floats, made: Floats) -> bool:
    return bool(made.sum() > (1.0 - _SLIGHT) * seconds.sum())
