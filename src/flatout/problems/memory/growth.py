"""Whether something keeps growing, how fast, and how long until it is too much. Shared by the problems of memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median, stdev

from flatout.records.evidence import Evidence, Series, StepMemory
from flatout.records.message import Message, message

# A trend needs this many samples over this long.
_FEWEST = 16
_SHORTEST_S = 4.0
_PARTS = 4
# Growth that slows to less than this part of its peak rate is about to end.
_LASTING = 0.5
# Less than this is ordinary fluctuation of Python and the allocator.
_LEAST_BYTES = 24 << 20
_LEAST_SHARE = 0.02
GIB = 1 << 30
DAY_S = 86400.0
# Growth that takes longer than this to fill the memory is not reported: hardly any run lasts so long.
TOO_FAR_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Growth:
    """Over the second half of the training: what was gained, the rate, and the level at the end."""

    gained_bytes: float
    bytes_per_s: float
    last_bytes: float


def lasting_growth(series: Series | None) -> Growth | None:
    """None where it does not grow, or levels off: the second half in four parts, each above the one before."""
    if series is None or len(series.values) < _FEWEST or series.t_s[-1] - series.t_s[0] < _SHORTEST_S:
        return None
    start_s, end_s = series.t_s[0], series.t_s[-1]
    part_s = (end_s - start_s) / 2 / _PARTS
    levels = []
    for part in range(_PARTS):
        since_s = end_s - (_PARTS - part) * part_s
        inside = [v for t, v in zip(series.t_s, series.values, strict=True) if since_s <= t <= since_s + part_s]
        if not inside:
            return None
        levels.append(median(inside))
    rises = [later - earlier for earlier, later in pairwise(levels)]
    if min(rises) <= 0 or rises[-1] < _LASTING * max(rises):
        return None
    rate = (levels[-1] - levels[0]) / ((_PARTS - 1) * part_s)
    # What was gained in the first half at such a rate, or more: a jump late in the run is no trend.
    gained_bytes = rate * _PARTS * part_s
    if gained_bytes < max(_LEAST_BYTES, _LEAST_SHARE * levels[0]):
        return None
    return Growth(gained_bytes, rate, series.values[-1])


# By step: so many stretches, and the quantile of Student's t for an interval of 95% of the mean of their rises.
_STRETCHES, _QUANTILE = 8, 2.447
_LONG = 8  # times as many readings where nothing is seen to grow


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """Bytes a step, with an interval of 95%, and what was gained in all."""

    per_step: float
    low: float
    high: float
    gained_bytes: float
    last_bytes: float


def growth_by_step(memory: StepMemory | None, is_explained: bool) -> StepGrowth | None:
    """None where it may just as well not grow, levels off, or is too little to tell from the allocator's own.

    Without a list that is seen to grow, more is asked for: an allocator also needs some steps to get its sizes.
    """
    if memory is None or len(memory.steps) < _STRETCHES * (1 if is_explained else _LONG):
        return None
    count = len(memory.steps)
    bounds = [round(place * count / _STRETCHES) for place in range(_STRETCHES + 1)]
    levels = [median(memory.bytes[since:until]) for since, until in pairwise(bounds)]
    middles = [mean(memory.steps[since:until]) for since, until in pairwise(bounds)]
    steps = [later - earlier for earlier, later in pairwise(middles)]
    if min(steps) <= 0:
        return None
    # A jump is one rise among others that are none, so the interval of their mean includes 0.
    rises = [(later - earlier) / apart for (earlier, later), apart in zip(pairwise(levels), steps, strict=True)]
    per_step, off = mean(rises), _QUANTILE * stdev(rises) / len(rises) ** 0.5
    half = len(rises) // 2 + 1
    gained_bytes = levels[-1] - levels[0]
    if per_step - off <= 0 or mean(rises[half:]) < _LASTING * mean(rises[:half]):
        return None
    if gained_bytes < max(_LEAST_BYTES, _LEAST_SHARE * levels[0]):
        return None
    return StepGrowth(per_step, per_step - off, per_step + off, gained_bytes, memory.bytes[-1])


def last_value(series: Series | None) -> float:
    return series.values[-1] if series is not None and series.values else 0.0


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes the run may take, and whose limit it is."""

    bytes: float
    words: Message


def memory_limit(run: Evidence) -> MemoryLimit | None:
    total, limit = run.report.environment.get("memory_bytes"), run.report.environment.get("memory_limit_bytes")
    if isinstance(limit, int | float) and limit > 0 and (not isinstance(total, int | float) or limit < total):
        return MemoryLimit(float(limit), message("memory.container_limit"))
    if isinstance(total, int | float) and total > 0:
        return MemoryLimit(float(total), message("memory.machine_memory"))
    return None


def room_bytes(run: Evidence, limit_bytes: float) -> float:
    """What is left below the limit at the end of the run."""
    available = run.series.get("memory_available_bytes")
    if available is not None and available.values:
        limit_bytes = min(limit_bytes, available.values[-1] + _own_bytes(run))
    return max(0.0, limit_bytes - _own_bytes(run))


def _own_bytes(run: Evidence) -> float:
    rss, host = run.series.get("rss_bytes"), run.report.host
    if host is not None and host.memory_peak is not None:
        return float(host.memory_peak)
    return max(rss.values) if rss is not None and rss.values else 0.0


def amount(size_bytes: float) -> str:
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.3g} GiB"
    return f"{size_bytes / (1 << 20):.3g} MiB" if size_bytes >= 1 << 20 else f"{size_bytes / 1024:.3g} KiB"


def duration(seconds: float) -> Message:
    if seconds < 5400:
        return message("memory.minutes", time=seconds / 60)
    if seconds < 2 * DAY_S:
        return message("memory.hours", time=seconds / 3600)
    return message("memory.days", time=seconds / DAY_S)
