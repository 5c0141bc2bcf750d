"""Does a remedy that rounds differently keep the loss within what the script varies by itself?

All trials see the same batches in the same order, so what is left when one loss curve is taken from another is not the
luck of the batches but the paths of the weights drifting apart. How far they drift when nothing is wrong is shown by
yardsticks: the script run again; or, where that gives the very same bits, run from weights that were nudged by no more
than a rounding; or nudged by as much as the remedy rounds, where that is coarser. This is the method:

1. The common steps are cut into five windows (up to ten in long trials), and each curve becomes its means over these.
2. The middle of the envelope is the mean of all yardsticks. Differences are counted in shares of its loss.
3. The width in a window is the yardsticks' own standard deviation about the middle: over all windows, or over the
   window and its two neighbours if that is more, since paths part gradually.
4. A window is outside if it is farther from the middle than chance would bring any one of the windows in 5% of all
   comparisons (Student's t; the windows of one trial resemble each other, so a trial counts as two measurements).
5. Small differences are taken for rounding whatever the yardsticks do, for a nudge of the last bit tells little of how
   a coarser rounding looks in the first hundred steps: half a percent of the loss, or a quarter of the chance error
   that the mean over the window has by the luck of its batches anyway, if that is more.

The width says as well what could not have been seen. If that is over 10%, being inside means nothing: "not verified".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.experiment.statistics.beats import Floats
from flatout.experiment.statistics.student import quantile
from flatout.records.message import message
from flatout.records.proof import Envelope
from flatout.records.trial import Trial

FEWEST_STEPS = 40
FEWEST_YARDSTICKS = 2
ROUNDING = 0.005
_OF_CHANCE = 0.25
# A drift that has to be seen, or nothing is said.
RESOLUTION = 0.10
_FALSE_ALARMS = 0.05
_WINDOWS = (5, 10)
_WINDOW_STEPS = 20
_MOST_MISSING = 0.2
_PER_TRIAL = 2


@dataclass(frozen=True, slots=True)
class _Curves:
    """Losses over the common steps: one row a trial; `steps` are the numbers (from 1) of those that all could read."""

    yardsticks: Floats
    changed: Floats
    steps: Floats


def judge_envelope(yardsticks: Sequence[Trial], changed: Sequence[Trial]) -> Envelope:
    """`yardsticks` are all trials of the script as it is, and those it was only nudged in; at least two."""
    yardsticks = [trial for trial in yardsticks if trial.losses]
    count = len(yardsticks)
    if not changed or not all(trial.losses for trial in changed):
        return Envelope("not verified", message("envelope.no_loss"), yardsticks=count)
    broken = _not_finite(yardsticks, changed)
    if broken is not None:
        return broken
    if count < FEWEST_YARDSTICKS:
        return Envelope("not verified", message("envelope.not_run_twice"), yardsticks=count)
    curves = _common(yardsticks, changed)
    steps = len(curves.steps)
    if steps < FEWEST_STEPS:
        sentence = message("envelope.too_few_steps", steps=steps, needed=FEWEST_STEPS)
        return Envelope("not verified", sentence, steps, yardsticks=count)
    return _judged(curves)


def _not_finite(yardsticks: Sequence[Trial], changed: Sequence[Trial]) -> Envelope | None:
    """A loss that is no number is outside, unless the script has such losses by itself."""
    first = min(filter(None, map(_first_not_finite, changed)), default=None)
    if any(_first_not_finite(trial) for trial in yardsticks):
        return Envelope("not verified", message("envelope.script_not_finite"), yardsticks=len(yardsticks))
    if first is None:
        return None
    sentence = message("envelope.not_finite", step=first)
    return Envelope("outside", sentence, first, window=(first, first), yardsticks=len(yardsticks))


def _first_not_finite(trial: Trial) -> int | None:
    losses = enumerate(trial.losses, 1)
    return next((step for step, loss in losses if loss is not None and not math.isfinite(loss)), None)


def _common(yardsticks: Sequence[Trial], changed: Sequence[Trial]) -> _Curves:
    length = min(len(trial.losses) for trial in (*yardsticks, *changed))
    rows = [np.array(trial.losses[:length], dtype=np.float64) for trial in (*yardsticks, *changed)]
    table = np.array(rows).reshape(len(rows), length)
    read = np.flatnonzero(np.isfinite(table).all(axis=0))
    if len(read) < (1.0 - _MOST_MISSING) * length:
        read = read[:0]  # what is missing may be just what differs
    steps = read.astype(np.float64) + 1
    return _Curves(table[: len(yardsticks), read], table[len(yardsticks) :, read], steps)


def _judged(curves: _Curves) -> Envelope:
    count, steps = curves.yardsticks.shape
    windows = min(max(steps // _WINDOW_STEPS, _WINDOWS[0]), _WINDOWS[1])
    starts = np.linspace(0, steps, windows, endpoint=False).astype(np.intp)
    sizes = np.diff([*starts, steps])
    own = np.add.reduceat(curves.yardsticks, starts, axis=1) / sizes
    middle = own.mean(axis=0)
    scale = _scale(middle, curves.yardsticks)
    if not scale.all():
        return Envelope("not verified", message("envelope.zero"), steps, yardsticks=count)
    away = (np.add.reduceat(curves.changed, starts, axis=1) / sizes).mean(axis=0) - middle
    away = away / scale
    if not away.any():
        return Envelope("inside", message("envelope.same"), steps, 0.0, 0.0, yardsticks=count)
    width = _width((own - middle) / scale)
    if not width.any():
        return Envelope("not verified", message("envelope.needs_perturbed"), steps, yardsticks=count)
    chance = quantile(1.0 - _FALSE_ALARMS / windows / 2, _PER_TRIAL * (count - 1))
    limits = np.maximum(
        _rounding(curves.yardsticks.mean(axis=0), starts, sizes) / scale,
        chance * width * math.sqrt(1.0 / count + 1.0 / len(curves.changed)),
    )
    limits = np.maximum(ROUNDING, limits)
    return _verdict(away, limits, curves.steps, starts, count)


def _scale(middle: Floats, losses: Floats) -> Floats:
    """What differences are shares of: the loss in each window, or its usual size where it passes through zero."""
    usual = float(np.median(np.abs(losses)))
    sizes = np.abs(middle)
    return np.full(len(middle), usual) if len(set(np.sign(middle))) > 1 else np.asarray(np.maximum(sizes, 0.01 * usual))


def _rounding(losses: Floats, starts: NDArray[np.intp], sizes: NDArray[np.intp]) -> Floats:
    """A share of each window mean's own chance error, from the jumps between neighbours: these know no trend."""
    jumps = np.diff(losses, prepend=losses[1])  # the first jump stands for the one before it
    variance = np.add.reduceat(jumps**2, starts) / sizes / 2
    return np.asarray(_OF_CHANCE * np.sqrt(variance / sizes))


def _width(away: Floats) -> Floats:
    """The standard deviation in each window, over all of them or its neighbourhood."""
    variance = (away**2).sum(axis=0) / (len(away) - 1)
    padded = np.pad(variance, 1, mode="edge")
    near = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    return np.asarray(np.sqrt(np.maximum(near, variance.mean())))


def _verdict(away: Floats, limits: Floats, steps: Floats, starts: NDArray[np.intp], count: int) -> Envelope:
    # A drift comes to stay, and it is enough to see it in the window that sees best in the last half.
    least = float(limits[len(limits) // 2 :].min())
    worst = int(np.argmax(np.abs(away) / limits))
    outside = np.flatnonzero(np.abs(away) > limits)
    total = len(steps)
    if len(outside):
        first = int(outside[0])
        ends = [*starts, total]
        window = (int(steps[ends[first]]), int(steps[ends[first + 1] - 1]))
        figures = {"percent": 100 * float(away[first]), "limit": 100 * float(limits[first])}
        sentence = message("envelope.outside", **figures, first=window[0], last=window[1])
        return Envelope("outside", sentence, total, least, float(away[worst]), window, count)
    if least > RESOLUTION:
        sentence = message("envelope.varies_too_much", least=100 * least)
        return Envelope("not verified", sentence, total, least, None, None, count)
    sentence = message("envelope.inside", steps=total, least=100 * least)
    return Envelope("inside", sentence, total, least, float(away[worst]), None, count)
