"""Where the steady part of a run begins, why it begins no sooner, and how well its step time is known.

Two things come before the steady part. First a few steps that are far slower than anything later: the first batch,
compiling, autotuning. Then, perhaps, a level of speed that the run leaves for good: the first epoch of a cache, batches
that were made ahead. Levels are found as change points of the ranks of the step times: ranks because a pause or a
burst then weighs as one step, whatever it took. A level that comes back is the run's own, and so is one of a run that
gets slower or faster throughout: then all steps count, and the report says that the speed varied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.records.report import WarmupCause

Floats = NDArray[np.float64]

# With fewer there is nothing to compare.
_FEWEST = 4
# A step of warm-up is over twice the typical one and slower than the later ones; of the very first either is enough.
_SLOW, _SLOW_FIRST = 2.0, 1.05
# Of the second half, that many records may be slower still without saying what a run's own slow steps are like.
_ODD = 0.02
# Levels: no shorter than so many steps (fewer are an episode), and apart by what would be worth fixing.
_LEVEL_STEPS = 8
_APART = 1.05
# A level with less of the steps than this does not say what the run is like.
_PART = 0.1
# Speeds that differ by what the report calls a high impact.
_VARIES = 1.2
# Batches made ahead last so many times as long as steady speeds say, for the first of them are no steady ones.
_LEEWAY = 2.0
# Change points are looked for among so many blocks of steps: one in so many of the run is as exact as anybody needs.
_BLOCKS = 512
# Ranks are made of at most so many means of neighbouring records: it keeps a million of them quick.
_MOST_RANKED = 1 << 14
# Compiling again is an exception below this share of the steps, and as long as the compiler does not give a function up
# (it compiles one again eight times); else the run compiles by nature.
_RARE, _MOST_AGAIN = 0.05, 8
# Windows of the watching: steps in which it takes more than this, as long as they are few.
_CLOSELY, _RARE_WINDOWS = 0.05, 0.25
# A cause is named from this share of what warm-up took beyond so many steady steps.
_NAMED = 0.1
# The step time is judged by the means of so many parts: neighbouring steps are not independent of each other.
_PARTS = 16
_Z = 1.96


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One row a record, of one step on average. Evaluations, checkpoints and logging are left out."""

    step_s: Floats
    count: Floats
    data_s: Floats
    # Seconds that the compiler took in the record.
    compile_s: Floats
    # Records in which the loader was begun again.
    epochs: NDArray[np.int64]
    # Seconds that the watching itself took in the record; None: not known.
    own_s: Floats | None = None
    # The first record from which on all remedies were in force and had settled.
    settled: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the process and may have made its first steps slower, or faster, than the others."""

    has_workers: bool = False
    # Batches that are made before the first is asked for.
    prefetched: int = 0
    # Steps that the host may be ahead of the device.
    queued: int = 0
    searches_cudnn: bool = False
    # Of the whole run, where it was not recorded step by step.
    compile_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """A speed that the run kept for a while: records `first` to `end`, seconds a step."""

    first: int
    end: int
    steps: float
    step_s: float


@dataclass(frozen=True, slots=True)
class SteadyPart:
    """Which records are steady, and what is known about the others."""

    is_steady: NDArray[np.bool_]
    # Records that were slow by themselves, and those up to the level that the run stays at.
    head: int
    first: int
    # What made the records between `head` and `first` another level; None where there are none.
    level_cause: WarmupCause | None
    # Milliseconds a step of the fastest and the slowest level of the steady part, where they are far apart.
    varied_ms: tuple[float, float] | None


def find_steady(times: StepTimes, known: Known) -> SteadyPart:
    """Divide a run into warm-up and steady part."""
    count = len(times.step_s)
    if count < _FEWEST:
        return SteadyPart(np.ones(count, bool), 0, 0, None, None)
    head = _slow_head(times)
    if head < times.settled <= count - _FEWEST:
        head = times.settled
    levels = find_levels(times, head)
    warm, cause = _leading_levels(levels, times, known)
    first = levels[warm].first if warm else head
    is_steady = np.arange(count) >= first
    again = is_steady & _is_compiling(times)
    if again.sum() <= _MOST_AGAIN and _is_rare(again, is_steady, times, _RARE):
        is_steady &= ~again
    watched = is_steady & _is_watched_closely(times)
    if _is_rare(watched, is_steady, times, _RARE_WINDOWS):
        is_steady &= ~watched
    return SteadyPart(is_steady, head, first, cause, _varied_ms(levels[warm:]))


def _is_compiling(times: StepTimes) -> NDArray[np.bool_]:
    """The compiler's own count leaves out what it takes to import it, to start its workers and to load its kernels. So
    it need not be most of a step that is far longer than the others.
    """
    usual = times.step_s[times.compile_s == 0]
    typical_s = float(np.median(usual)) if len(usual) else math.inf
    is_most = times.compile_s > 0.5 * times.step_s * times.count
    return np.asarray(is_most | ((times.compile_s > 0) & (times.step_s > _SLOW * typical_s)))


def _is_watched_closely(times: StepTimes) -> NDArray[np.bool_]:
    """Windows: what the watching takes there is no part of the script's speed."""
    if times.own_s is None:
        return np.zeros(len(times.step_s), bool)
    return np.asarray(times.own_s > _CLOSELY * times.step_s * times.count)


def _is_rare(chosen: NDArray[np.bool_], among: NDArray[np.bool_], times: StepTimes, share: float) -> bool:
    return bool(times.count[chosen].sum() <= share * times.count[among].sum())


def _slow_head(times: StepTimes) -> int:
    """How many leading records are warm-up because they are slower than the run ever is later.

    A slow record that comes later than twice the warm-up so far is an event of the run, not of its beginning.
    """
    step_s = times.step_s
    later = slice(len(step_s) // 2, None)
    usual = step_s[later][times.compile_s[later] == 0]
    if not len(usual):
        return 0
    typical, odd = float(np.median(usual)), max(int(len(usual) * _ODD), int(len(usual) >= _LEVEL_STEPS))
    own = float(np.partition(usual, len(usual) - 1 - odd)[len(usual) - 1 - odd])
    slow = np.flatnonzero(step_s > max(_SLOW * typical, own))
    head = int(step_s[0] > min(_SLOW * typical, max(_SLOW_FIRST * typical, own)))
    for record in slow.tolist():
        if record > 2 * head + 2 or record >= len(step_s) - 1:
            break
        head = record + 1
    return head


def find_levels(times: StepTimes, since: int = 0) -> list[Level]:
    """The levels of speed from record `since` on, in order."""
    step_s, count = times.step_s[since:], times.count[since:]
    if not len(step_s):
        return []
    size = -(-len(step_s) // _MOST_RANKED)
    means = _means(step_s, size)
    block = -(-len(means) // _BLOCKS)
    scores = _means(_ranks(means), block)
    steps_a_block = float(count.mean()) * size * block
    bounds = change_points(scores, max(1, math.ceil(_LEVEL_STEPS / steps_a_block)))
    ends = [min(len(step_s), bound * block * size) for bound in bounds] + [len(step_s)]
    levels = []
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        speed = _usual_mean(means[first // size : -(-end // size)])
        levels.append(Level(since + first, since + end, float(count[first:end].sum()), speed))
    return levels


def _means(values: Floats, size: int) -> Floats:
    """Of each `size` neighbours; the last may be of fewer."""
    if size == 1:
        return values
    starts = np.arange(0, len(values), size)
    return np.asarray(np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values))))


def _usual_mean(values: Floats) -> float:
    """The mean, with what is rare and long cut down to what is just not rare."""
    return float(np.minimum(values, np.percentile(values, 95)).mean())


def _ranks(values: Floats) -> Floats:
    """From 0 to 1, equal values alike."""
    ordered = np.sort(values)
    both = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(0.5 * both / len(values))


def change_points(values: Floats, shortest: int = 1) -> list[int]:
    """Where the mean changes: the division with the least squared error plus a price for each change.

    The price is four times the noise's variance times the logarithm of the length: twice that of Schwarz's criterion,
    because the noise of neighbouring steps is not independent. The noise is taken from the differences of neighbours,
    which a change of the mean hardly touches.
    """
    length = len(values)
    if length < 2 * shortest + 1:
        return []
    noise = float((np.diff(values) ** 2).mean() / 2)
    price = 4.0 * max(noise, 1e-12) * math.log(length)
    sums, squares = np.append(0.0, np.cumsum(values)), np.append(0.0, np.cumsum(values * values))
    best = np.full(length + 1, np.inf)
    best[0] = -price
    came_from = np.zeros(length + 1, np.int64)
    for end in range(shortest, length + 1):
        starts = np.arange(0, end - shortest + 1)
        error = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        total = best[starts] + error + price
        chosen = int(np.argmin(total))
        best[end], came_from[end] = total[chosen], starts[chosen]
    found: list[int] = []
    end = int(came_from[length])
    while end > 0:
        found.append(end)
        end = int(came_from[end])
    return found[::-1]


def _leading_levels(levels: Sequence[Level], times: StepTimes, known: Known) -> tuple[int, WarmupCause | None]:
    """How many levels at the beginning are warm-up, and why.

    They are if the run never comes back to their speed, and what follows differs from them more than among itself.
    """
    for warm in range(len(levels) - 1, 0, -1):
        cause = _why_left(levels[:warm], levels[warm:], times, known)
        if cause is not None:
            return warm, cause
    return 0, None


def _why_left(before: Sequence[Level], after: Sequence[Level], times: StepTimes, known: Known) -> WarmupCause | None:
    """What made the run leave the levels before for good; None where they are its own.

    A first epoch may take nearly all of the steps, for it is known to end. What is slower for no known reason may take
    half of them, if it is slower by much: a little does no harm, and the more steps the better. What is faster is
    warm-up only as long as batches that were made ahead can last, or the host may run ahead of the device.
    """
    total, left = (sum(level.steps for level in part) for part in ([*before, *after], after))
    own = [level.step_s for level in after if level.steps >= _PART * left] or [level.step_s for level in after]
    needed = max(_APART, max(own) / min(own))
    slower = min(level.step_s for level in before) / max(own)
    faster = min(own) / max(level.step_s for level in before)
    waits = _data_part(before, after, times) >= 0.5
    if slower > needed and waits and left >= _LEVEL_STEPS and _begins_epoch(after[0].first, times):
        return "first epoch"
    if slower > max(needed, _VARIES) and left >= 0.5 * total:
        return "unexplained"
    if faster <= needed or left < 0.5 * total:
        return None
    # Batches are used up while new ones come in, only more slowly; a queue fills while it is worked off.
    ahead = known.prefetched if waits else known.queued
    if before[-1].end > _LEEWAY * ahead / (1 - 1 / faster):
        return None
    return "prefetched" if waits else "device queue"


def _data_part(before: Sequence[Level], after: Sequence[Level], times: StepTimes) -> float:
    """Of the difference in step time, how much is a difference in waiting for data."""
    early, late = slice(before[0].first, before[-1].end), slice(after[0].first, after[-1].end)
    differs = float(times.step_s[early].mean() - times.step_s[late].mean())
    waits = float(times.data_s[early].mean() - times.data_s[late].mean())
    return waits / differs if differs else 0.0


def _begins_epoch(record: int, times: StepTimes) -> bool:
    """Whether an epoch after the first began within some steps of this record."""
    near = max(_LEVEL_STEPS, len(times.step_s) // _BLOCKS)
    return bool((np.abs(times.epochs[1:] - record) <= near).any())


def _varied_ms(levels: Sequence[Level]) -> tuple[float, float] | None:
    steps = sum(level.steps for level in levels)
    speeds = [1e3 * level.step_s for level in levels if level.steps >= _PART * steps]
    if len(speeds) < 2 or max(speeds) <= _VARIES * min(speeds):
        return None
    return min(speeds), max(speeds)


# Why there was a warm-up.


def warmup_causes(times: StepTimes, part: SteadyPart, known: Known) -> tuple[WarmupCause, ...]:
    """What the time beyond so many steady steps went to, the largest part first."""
    warm = ~part.is_steady
    if not warm.any() or not part.is_steady.any():
        return ()
    usual_s = float(np.median(times.step_s[part.is_steady]))
    extra_s = float(((times.step_s - usual_s) * times.count)[warm].sum())
    if extra_s <= 0:
        return (part.level_cause or "unexplained",)
    parts = dict(_parts_s(times, part, known, extra_s))
    named = [(seconds, cause) for cause, seconds in parts.items() if seconds >= _NAMED * extra_s]
    named.sort(key=lambda item: -item[0])
    return tuple(cause for _, cause in named) or ("unexplained",)


def _parts_s(times: StepTimes, part: SteadyPart, known: Known, extra_s: float) -> Iterator[tuple[WarmupCause, float]]:
    steady = part.is_steady
    usual_s, usual_data_s = float(np.median(times.step_s[steady])), float(np.median(times.data_s[steady]))
    compile_s = float((times.compile_s * ~steady).sum()) or min(known.compile_s, extra_s)
    yield "compile", compile_s
    head = slice(0, part.head)
    waited_s = float(((times.data_s[head] - usual_data_s) * times.count[head]).sum())
    yield "workers" if known.has_workers else "first batch", waited_s
    level = slice(part.head, part.first)
    level_s = float(((times.step_s[level] - usual_s) * times.count[level]).sum())
    if part.level_cause is not None:
        yield part.level_cause, level_s
    left_s = extra_s - compile_s - max(0.0, waited_s) - max(0.0, level_s)
    yield "cudnn search" if known.searches_cudnn else "first step", left_s


# How well the step time is known.


def step_error(step_s: Floats) -> float | None:
    """Half of the 95% interval of the mean step, as a share of it; None where there are too few to tell.

    By the means of up to sixteen parts, because neighbouring steps are alike. Their variance is that around their
    mean, or that between neighbours if it is smaller: a run whose speed drifts is no better known with more steps.
    """
    if len(step_s) < _LEVEL_STEPS:
        return None
    means = _means(step_s, max(1, len(step_s) // _PARTS))[: len(step_s) // max(1, len(step_s) // _PARTS)]
    mean, free = float(means.mean()), len(means) - 1
    if mean <= 0:
        return None
    variance = min(float(means.var(ddof=1)), float((np.diff(means) ** 2).mean() / 2))
    return _student(free) * math.sqrt(variance / len(means)) / mean


def _student(free: int) -> float:
    """The 97.5% quantile of Student's distribution, to a hundredth from four degrees of freedom on."""
    z = _Z
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


def steps_needed(steps: int, error: float | None, gain: float) -> int:
    """How many steady steps would tell a gain of that size from chance."""
    if error is None or error <= 0:
        return max(2 * _LEVEL_STEPS, steps)
    return max(2 * _LEVEL_STEPS, math.ceil(steps * (error / math.log(gain)) ** 2))


def is_told(gain: float, error: float | None) -> bool:
    """Whether a predicted gain is larger than what the step time is uncertain by."""
    return error is not None and math.log(max(gain, 1e-9)) > error
