"""What trials say of the training's results: the same bits, losses within the envelope, the user's metric not worse."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flatout.experiment.statistics.intervals import student_quantile
from flatout.experiment.statistics.rates import Floats
from flatout.records.message import Message, message
from flatout.records.proof import Envelope, Identity, MetricVerdict
from flatout.records.trial import Trial

# Did a remedy leave every number as it was? Losses are compared bit by bit over the steps that both trials have, and
# weights where both stopped at the same step. A script that does not repeat itself cannot be held to this: then it is
# said from which step it differs, and how close losses stay while its own do (`measure_nearness`); after that only the
# envelope can tell.


@dataclass(frozen=True, slots=True)
class _Meeting:
    """How far two trials agree. `first` is the first step (from 1) whose losses differ."""

    compared: int
    first: int | None
    values: tuple[str, str] | None
    weights_equal: bool | None

    @property
    def differs(self) -> bool:
        return self.first is not None or self.weights_equal is False


def judge_identity(bare: Sequence[Trial], changed: Trial) -> Identity:
    """`changed` against the script as it is, of which two trials show whether it repeats itself at all."""
    bare = [trial for trial in bare if trial.losses]
    if not bare or not changed.losses:
        return Identity("not comparable", 0, message("identity.no_loss_with_it" if bare else "identity.no_loss"))
    meetings = [_met(trial, changed) for trial in bare]
    if not any(met.compared or met.differs for met in meetings):
        return Identity("not comparable", 0, message("identity.unread"))
    agreed = max((met for met in meetings if not met.differs), key=lambda met: met.compared, default=None)
    departed = max((met for met in meetings if met.differs), key=lambda met: met.compared, default=None)
    itself = [met for met in (_met(trial, other) for trial, other in combinations(bare, 2)) if met.differs]
    # A script that has several ways to go may well go one of them with the remedy.
    if agreed is not None and (departed is None or (itself and agreed.compared > departed.compared)):
        id = "identity.same_weights" if agreed.weights_equal else "identity.weights_not_compared"
        sentence = message(id, steps=agreed.compared)
        return Identity("identical", agreed.compared, sentence, weights_equal=agreed.weights_equal)
    assert departed is not None
    if itself:
        return _unrepeatable(bare, changed, departed, min(itself, key=lambda met: met.compared))
    sentence = _departed(departed)
    if len(bare) < 2:
        sentence = message("identity.not_repeated", sentence=sentence)
    return Identity("differs", departed.compared, sentence, departed.first, departed.values, departed.weights_equal)


def _met(trial: Trial, other: Trial) -> _Meeting:
    compared = 0
    for step, (left, right) in enumerate(zip(trial.losses, other.losses, strict=False), 1):
        if left is None or right is None:
            continue
        if _bits(left) != _bits(right):
            return _Meeting(compared, step, (float(left).hex(), float(right).hex()), _weights(trial, other))
        compared += 1
    return _Meeting(compared, None, None, _weights(trial, other))


def _bits(loss: float) -> bytes:
    """Not `==`: a NaN equals the same NaN here, and 0.0 is not -0.0."""
    return struct.pack("<d", loss)


def _weights(trial: Trial, other: Trial) -> bool | None:
    if trial.weights is None or other.weights is None or _digested_at(trial) != _digested_at(other):
        return None
    return trial.weights == other.weights


def _digested_at(trial: Trial) -> tuple[str, int]:
    """The step whose weights these are, or else the pass."""
    return ("step", trial.steps) if trial.steps is not None else ("pass", len(trial.losses))


def _departed(meeting: _Meeting) -> Message:
    if meeting.first is None or meeting.values is None:
        return message("identity.weights_differ", steps=meeting.compared)
    before, after = (float.fromhex(value) for value in meeting.values)
    return message("identity.loss_differs", step=meeting.first, before=before, after=after)


def _unrepeatable(bare: Sequence[Trial], changed: Trial, meeting: _Meeting, itself: _Meeting) -> Identity:
    near = measure_nearness(bare, changed)
    is_loss = itself.first is not None
    where = message("identity.from_step", step=itself.first) if is_loss else message("identity.in_weights")
    if near.values is not None:
        before, after = near.values
        step = near.steps + 1
        sentence = message("identity.far", step=step, before=before, after=after, where=where)
        return Identity("differs", near.steps, sentence, step, (before.hex(), after.hex()), False)
    if near.verdict == "alike":
        how = message("identity.within", apart=near.apart) if near.apart else message("identity.to_the_bit")
        sentence = message("identity.alike", steps=near.steps, how=how, where=where)
        return Identity("alike", near.steps, sentence, meeting.first, meeting.values, meeting.weights_equal)
    sentence = message("identity.not_repeatable", where=where)
    if meeting.first is not None:
        sentence = message("identity.not_repeatable_nor_with_it", where=where, step=meeting.first)
    return Identity("not comparable", meeting.compared, sentence, meeting.first, meeting.values, meeting.weights_equal)


# How close losses stay to those of a script that is not deterministic to the bit.
#
# Atomic additions and the like come out in another order each time. The difference begins as a rounding error and grows
# from step to step; other batches, or the same in another order, are far away at once. So the first steps tell: as long
# as the script's own runs stay close together, a remedy that changes nothing stays as close to them.

# All in shares of the loss. Runs of the script that are farther apart tell nothing any more.
_CLOSE = 1e-3
# What rounding makes of a loss, and how much farther than from each other one more run may be from the nearest.
_ROUNDING, _TIMES = 2e-5, 4.0
# Far away right after a step that was within rounding: no rounding error grows by so much in one step.
_FAR, _SAME = 5e-3, 1e-4
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Nearness:
    """For how many steps it stayed as close as the script to itself, and how close that was."""

    verdict: Literal["alike", "far", "unknown"]
    steps: int
    apart: float
    # The losses at the step where it is far away: the nearest of the script, and this one.
    values: tuple[float, float] | None = None


def measure_nearness(bare: Sequence[Trial], changed: Trial) -> Nearness:
    """`bare` are runs of the script as it is, two at least."""
    apart, before, steps = 0.0, 0.0, 0
    for losses in zip(*(trial.losses for trial in (*bare, changed)), strict=False):
        known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if len(known) < len(losses) or not any(known):
            break
        *own, ours = known
        size = max(map(abs, own))
        now = max(apart, (max(own) - min(own)) / size) if size else math.inf
        if now > _CLOSE:
            break
        nearest = min(own, key=lambda loss: abs(loss - ours))
        away = abs(ours - nearest) / size
        if away > _FAR and before <= _ROUNDING and now <= _SAME:
            return Nearness("far", steps, apart, (nearest, ours))
        if away > max(_ROUNDING, _TIMES * now):
            break
        apart, before, steps = now, away, steps + 1
    return Nearness("alike" if steps >= _FEWEST else "unknown", steps, apart)


# Does a remedy that rounds differently keep the loss within what the script varies by itself?
#
# All trials see the same batches in the same order, so two loss curves differ by the paths of the weights, not by the
# luck of the batches. How far paths drift apart when nothing is wrong is shown by control trials: the script run again;
# where that gives the very same bits, from weights perturbed by no more than a rounding; where the remedy rounds more
# coarsely, from weights perturbed by as much. The method:
#
# 1. The common steps are cut into five windows (up to ten in long trials), and each curve becomes its means over these.
# 2. The middle of the envelope is the mean of all controls. Differences are counted in shares of its loss.
# 3. The width in a window is the controls' own standard deviation about the middle: over all windows, or over the
#    window and its two neighbours if that is more, since paths part gradually.
# 4. A window is outside if it is farther from the middle than chance would bring any one of the windows in 5% of all
#    comparisons (Student's t; the windows of one trial resemble each other, so a trial counts as two measurements).
# 5. Small differences are taken for rounding whatever the controls do, because perturbing the last bit says little of
#    how a coarser rounding looks in the first hundred steps: half a percent of the loss, or a quarter of the chance
#    error that the mean over the window has by the luck of its batches anyway, if that is more.
#
# The width also says what could not have been seen. If that is over 10%, being inside means nothing: "not verified".

FEWEST_STEPS = 40
FEWEST_CONTROLS = 2
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

    controls: Floats
    changed: Floats
    steps: Floats


def judge_envelope(controls: Sequence[Trial], changed: Sequence[Trial]) -> Envelope:
    """`controls` are trials of the script as it is, with or without perturbed weights; two at least."""
    controls = [trial for trial in controls if trial.losses]
    return replace(_judge_losses(controls, changed), yardsticks=len(controls))


def _judge_losses(controls: Sequence[Trial], changed: Sequence[Trial]) -> Envelope:
    if not changed or not all(trial.losses for trial in changed):
        return Envelope("not verified", message("envelope.no_loss"))
    if any(_first_not_finite(trial) for trial in controls):
        return Envelope("not verified", message("envelope.script_not_finite"))
    if (broken := min(filter(None, map(_first_not_finite, changed)), default=None)) is not None:
        return Envelope("outside", message("envelope.not_finite", step=broken), broken, window=(broken, broken))
    if len(controls) < FEWEST_CONTROLS:
        return Envelope("not verified", message("envelope.not_run_twice"))
    curves = _common_curves(controls, changed)
    steps = len(curves.steps)
    if steps < FEWEST_STEPS:
        return Envelope("not verified", message("envelope.too_few_steps", steps=steps, needed=FEWEST_STEPS), steps)
    return _judge_curves(curves)


def _first_not_finite(trial: Trial) -> int | None:
    losses = enumerate(trial.losses, 1)
    return next((step for step, loss in losses if loss is not None and not math.isfinite(loss)), None)


def _common_curves(controls: Sequence[Trial], changed: Sequence[Trial]) -> _Curves:
    length = min(len(trial.losses) for trial in (*controls, *changed))
    rows = [np.array(trial.losses[:length], dtype=np.float64) for trial in (*controls, *changed)]
    table = np.array(rows).reshape(len(rows), length)
    read = np.flatnonzero(np.isfinite(table).all(axis=0))
    if len(read) < (1.0 - _MOST_MISSING) * length:
        read = read[:0]  # what is missing may be just what differs
    steps = read.astype(np.float64) + 1
    return _Curves(table[: len(controls), read], table[len(controls) :, read], steps)


def _judge_curves(curves: _Curves) -> Envelope:
    count, steps = curves.controls.shape
    windows = min(max(steps // _WINDOW_STEPS, _WINDOWS[0]), _WINDOWS[1])
    starts = np.linspace(0, steps, windows, endpoint=False).astype(np.intp)
    sizes = np.diff([*starts, steps])
    own = np.add.reduceat(curves.controls, starts, axis=1) / sizes
    middle = own.mean(axis=0)
    scale = _scale(middle, curves.controls)
    if not scale.all():
        return Envelope("not verified", message("envelope.zero"), steps)
    away = (np.add.reduceat(curves.changed, starts, axis=1) / sizes).mean(axis=0) - middle
    away = away / scale
    if not away.any():
        return Envelope("inside", message("envelope.same"), steps, 0.0, 0.0)
    width = _width((own - middle) / scale)
    if not width.any():
        return Envelope("not verified", message("envelope.needs_perturbed"), steps)
    chance = student_quantile(1.0 - _FALSE_ALARMS / windows / 2, _PER_TRIAL * (count - 1))
    limits = np.maximum(
        _rounding(curves.controls.mean(axis=0), starts, sizes) / scale,
        chance * width * math.sqrt(1.0 / count + 1.0 / len(curves.changed)),
    )
    limits = np.maximum(ROUNDING, limits)
    return _verdict(away, limits, curves.steps, starts)


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


def _verdict(away: Floats, limits: Floats, steps: Floats, starts: NDArray[np.intp]) -> Envelope:
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
        return Envelope("outside", sentence, total, least, float(away[worst]), window)
    if least > RESOLUTION:
        sentence = message("envelope.varies_too_much", least=100 * least)
        return Envelope("not verified", sentence, total, least)
    sentence = message("envelope.inside", steps=total, least=100 * least)
    return Envelope("inside", sentence, total, least, float(away[worst]))


# The user's own metric: did it stay within what the script itself gives from one run to the next?
#
# A faster script gets further in the same time, so trials are compared where all of them have printed it as many times.
# Only a change for the worse counts against a remedy. With few runs the metric's spread is hardly known, and the limit
# is wide accordingly (Student's t).

Verdict = Literal["inside", "worse", "not verified"]
_CONFIDENCE = 0.95


def judge_metric(controls: Sequence[Trial], changed: Sequence[Trial], *, higher_is_better: bool) -> MetricVerdict:
    """`controls` are trials of the script as it is."""
    times = _common_prints([*controls, *changed])
    values = _values(controls, times), _values(changed, times)
    if not all(values):
        return MetricVerdict("not verified", message("metric.none_with_it" if values[0] else "metric.none"))
    before, after = (float(np.mean(of_arm)) for of_arm in values)
    if not math.isfinite(before):
        return MetricVerdict("not verified", message("metric.baseline_not_finite", before=before), before, after)
    if not math.isfinite(after):
        return MetricVerdict("worse", message("metric.not_finite", before=before, after=after), before, after)
    loss = before - after if higher_is_better else after - before
    verdict, sentence, limit = _judge_means(*values, loss)
    return MetricVerdict(verdict, sentence, before, after, limit)


def _judge_means(before: Sequence[float], after: Sequence[float], loss: float) -> tuple[Verdict, Message, float | None]:
    """The verdict, the sentence, and the loss that could not have been seen."""
    means = {"before": float(np.mean(before)), "after": float(np.mean(after))}
    if len(before) < 2:
        return "not verified", message("metric.run_once", **means), None
    if len({*before, *after}) == 1:
        return "inside", message("metric.always", before=means["before"]), 0.0
    limit = _limit(before, len(after))
    if not limit and loss > 0.0:
        return "not verified", message("metric.no_spread", **means), None
    if loss > limit:
        return "worse", message("metric.worse", **means, loss=loss, limit=limit), limit
    if limit > RESOLUTION * abs(means["before"]):
        return "not verified", message("metric.varies_too_much", **means, limit=limit), limit
    return "inside", message("metric.inside", **means, limit=limit), limit


def _common_prints(trials: Sequence[Trial]) -> int:
    """How many times all that have printed it have; 0 where only the last value is known of one."""
    return min((len(trial.metrics) for trial in trials if trial.metric is not None), default=0)


def _values(trials: Sequence[Trial], times: int) -> list[float]:
    return [trial.metrics[times - 1] if times else trial.metric for trial in trials if trial.metric is not None]


def _limit(before: Sequence[float], after: int) -> float:
    """How far the means of that many runs of the same script get apart."""
    chance = student_quantile(_CONFIDENCE, len(before) - 1)
    return chance * float(np.std(before, ddof=1)) * math.sqrt(1.0 / len(before) + 1.0 / after)
