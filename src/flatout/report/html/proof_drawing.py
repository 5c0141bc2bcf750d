"""The drawings of a proof: gains with their intervals, step times by arm, losses in the band of the bare script."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from flatout.records.fix import Fix, Tried
from flatout.records.trial import Trial
from flatout.report import text
from flatout.report.fix import remedy_with_value
from flatout.report.html.drawing import Rect

# Trials that are no arm of the comparison, by how their names begin: a look, the two ceilings, several arms in turns.
_CONTROLS = ("perturbed weights", "other random numbers")
_NO_ARMS = ("look", "ceiling", "loaders alone", "remedies in turns")
_BINS, _WIDTH, _HEIGHT = 90, 450, 38
_POINTS = 240
_LOSS_WIDTH, _LOSS_HEIGHT = 1000, 220
# Ends of the axis of gains: an interval that goes beyond is cut there.
_LEAST, _MOST = 0.5, 3.0
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """One row of the gains: places in percent of the axis."""

    name: str
    state: str
    low: float | None
    mid: float | None
    high: float | None
    predicted: float | None
    figure: str


@dataclass(frozen=True, slots=True)
class Gains:
    none_at: float
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """`name` is a word's key for the bare script and the profile, else the remedies themselves."""

    name: str
    is_named: bool
    css: str
    trials: int
    steps: int
    bars: tuple[Rect, ...]
    median_at: float
    median: str


@dataclass(frozen=True, slots=True)
class Arms:
    low: str
    high: str
    width: int
    height: int
    rows: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class Losses:
    """Curves as the points of polylines, in a box of `width` by `height`."""

    width: int
    height: int
    band: str
    bare: tuple[str, ...]
    profile: tuple[str, ...]
    low: str
    high: str
    steps: int


def draw_gains(fix: Fix) -> Gains | None:
    """Every remedy that was tried, on one logarithmic axis."""
    mids = [attempt.gain.mid for attempt in fix.tried if attempt.gain is not None]
    mids += [attempt.planned.predicted.mid for attempt in fix.tried if attempt.planned.predicted is not None]
    if not fix.tried:
        return None
    high = max(1.3, min(max((_high(attempt) for attempt in fix.tried), default=1.3), _MOST * max(mids, default=1.0)))
    low = min(0.9, max(min((_low(attempt) for attempt in fix.tried), default=0.9), _LEAST * min([1.0, *mids])))

    def at(value: float) -> float:
        place = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return round(100 * min(1.0, max(0.0, place)), 2)

    ticks = tuple((at(tick), f"×{tick:g}") for tick in _TICKS if low * 1.02 < tick < high * 0.98)
    return Gains(at(1.0), ticks, tuple(_interval(attempt, at) for attempt in fix.tried))


def _low(tried: Tried) -> float:
    return max(tried.gain.low, 1e-6) if tried.gain is not None else 1.0


def _high(tried: Tried) -> float:
    return tried.gain.high if tried.gain is not None else 1.0


def _interval(tried: Tried, at: object) -> Interval:
    assert callable(at)
    gain, predicted = tried.gain, tried.planned.predicted
    return Interval(
        name=remedy_with_value(tried.planned),
        state=tried.outcome,
        low=None if gain is None else at(max(gain.low, 1e-9)),
        mid=None if gain is None else at(max(gain.mid, 1e-9)),
        high=None if gain is None else at(gain.high),
        predicted=None if predicted is None else at(max(predicted.mid, 1e-9)),
        figure="–" if gain is None else text.with_interval(gain),
    )


def draw_arms(fix: Fix, trials: Sequence[Trial]) -> Arms | None:
    """The bare script first, the profile last."""
    by_arm: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.ended_well and is_arm(trial):
            by_arm.setdefault(_key(trial.remedies), []).append(trial)
    profile = _key(fix.profile)
    order = sorted(by_arm, key=lambda key: (key != "{}", key == profile, len(key), key))
    times = {key: _times_ms(by_arm[key], _by_sample(by_arm)) for key in order}
    everything = sorted(ms for of_arm in times.values() for ms in of_arm)
    if not everything:
        return None
    low, high = everything[len(everything) // 200], everything[-1 - len(everything) // 200]
    high = max(high, low * 1.05)
    unit = " / sample" if _by_sample(by_arm) else ""
    rows = tuple(_arm(key, key == profile != "{}", len(by_arm[key]), times[key], (low, high)) for key in order)
    return Arms(text.milliseconds(low) + unit, text.milliseconds(high) + unit, _WIDTH, _HEIGHT, rows)


def is_arm(trial: Trial) -> bool:
    """Whether it tells how fast the script is under its remedies."""
    return not trial.arm.startswith((*_NO_ARMS, *_CONTROLS))


def _key(remedies: Mapping[str, object]) -> str:
    return json.dumps(dict(sorted(remedies.items())), default=str)


def _by_sample(by_arm: Mapping[str, Sequence[Trial]]) -> bool:
    """Steps of different size are compared by the sample."""
    sizes = {
        round(median(_known(trial.samples)), 3)
        for trials in by_arm.values()
        for trial in trials
        if _known(trial.samples)
    }
    return len(sizes) > 1


def _times_ms(trials: Sequence[Trial], by_sample: bool) -> list[float]:
    found: list[float] = []
    for trial in trials:
        size = median(_known(trial.samples)) if by_sample and _known(trial.samples) else 1.0
        found += [1e3 * seconds / size for seconds in trial.step_s if seconds > 0]
    return found


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value) and value > 0]


def _arm(key: str, is_profile: bool, trials: int, times: Sequence[float], ends: tuple[float, float]) -> Arm:
    low, high = ends

    def at(ms: float) -> float:
        return min(1.0, max(0.0, math.log(ms / low) / math.log(high / low)))

    counts = [0] * _BINS
    for ms in times:
        counts[min(_BINS - 1, int(at(ms) * _BINS))] += 1
    each, most = _WIDTH / _BINS, max(counts)
    bars = tuple(
        Rect(
            round(n * each, 2),
            round(_HEIGHT * (1 - count / most), 2),
            round(each * 0.9, 2),
            round(_HEIGHT * count / most, 2),
            f"{count:,}",
        )
        for n, count in enumerate(counts)
        if count
    )
    middle = median(times)
    name = "arm_bare" if key == "{}" else "arm_profile" if is_profile else _words(json.loads(key))
    css = "profile" if is_profile else ""
    is_named = key == "{}" or is_profile
    return Arm(name, is_named, css, trials, len(times), bars, round(at(middle) * _WIDTH, 2), text.milliseconds(middle))


def _words(remedies: Mapping[str, object]) -> str:
    return ", ".join(name if value is True else f"{name}={value}" for name, value in remedies.items())


def draw_losses(fix: Fix, trials: Sequence[Trial]) -> Losses | None:
    """The bare script's curves and their band, and the profile's; None where no loss was kept."""
    told = [trial for trial in trials if len(_finite(trial.losses)) > 1 and not trial.arm.startswith(_NO_ARMS)]
    bare = [trial.losses for trial in told if not trial.remedies]
    with_profile = [trial.losses for trial in told if fix.profile and trial.remedies == fix.profile]
    curves = [*bare, *with_profile]
    if not bare:
        return None
    steps = min(len(curve) for curve in curves)
    size = max(1, -(-steps // _POINTS))
    thinned = [_thinned(curve[:steps], size) for curve in curves]
    values = sorted(value for curve in thinned for value in curve if value is not None)
    if not values:
        return None
    low, high = values[0], values[-1]
    high = high if high > low else low + 1.0

    def point(n: int, value: float) -> str:
        x = _LOSS_WIDTH * n / max(1, len(thinned[0]) - 1)
        return f"{x:.1f},{_LOSS_HEIGHT * (1 - (value - low) / (high - low)):.1f}"

    def line(curve: Sequence[float | None]) -> str:
        return " ".join(point(n, value) for n, value in enumerate(curve) if value is not None)

    lines = [line(curve) for curve in thinned]
    of_bare = thinned[: len(bare)]
    band = " ".join([*_edge(of_bare, min, point), *reversed(list(_edge(of_bare, max, point)))])
    return Losses(
        _LOSS_WIDTH,
        _LOSS_HEIGHT,
        band,
        tuple(lines[: len(bare)]),
        tuple(lines[len(bare) :]),
        f"{low:.4g}",
        f"{high:.4g}",
        steps,
    )


def _edge(curves: Sequence[Sequence[float | None]], pick: object, point: object) -> Iterator[str]:
    assert callable(pick) and callable(point)
    for n, values in enumerate(zip(*curves, strict=True)):
        known = [value for value in values if value is not None]
        if known:
            yield point(n, pick(known))


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _thinned(values: Sequence[float | None], size: int) -> list[float | None]:
    """Means of so many passes: the noise of single batches hides the path."""
    parts = (_finite(values[at : at + size]) for at in range(0, len(values), size))
    return [sum(part) / len(part) if part else None for part in parts]
