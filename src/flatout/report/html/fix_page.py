"""The page of a fix: what it gained and how surely, every remedy, the quality, and the run as it was before."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from flatout.records.fix import Fix, Tried
from flatout.records.message import Message
from flatout.records.proof import MeasuredGain
from flatout.records.report import RunReport
from flatout.records.trial import Trial
from flatout.report import text
from flatout.report.fix import remedy_with_value
from flatout.report.html.drawing import Bar, Rect, chart_data, phase_bar
from flatout.report.html.page import Page, in_both, show
from flatout.report.html.run_page import RunMaterial, run_context, shown_command
from flatout.report.overview import next_after_fix
from flatout.words import chinese_if_known, english


@dataclass(frozen=True, slots=True)
class FixMaterial:
    """`before` is the run that was looked at; `after` the report of a trial under the profile. Both may be gone."""

    fix: Fix
    trials: tuple[Trial, ...]
    before: RunMaterial | None
    after: RunReport | None
    name: str


def fix_page(material: FixMaterial) -> Page:
    fix, before = material.fix, material.before
    context: dict[str, Any] = {} if before is None else run_context(before)
    bars = _before_after(material)
    return Page(
        template="fix.html",
        title=f"flatout fix · {material.name}",
        kind=material.name,
        context={
            **context,
            "has_run": before is not None,
            "fix": fix,
            "facts_of_fix": [shown_command(fix.command), "CPU" if fix.device == "cpu" else fix.device],
            "next": next_after_fix(fix),
            "ceiling_told": None if fix.ceiling is None else _with_full_stop(fix.ceiling.sentence),
            "before": _rate(fix.before_per_s),
            "after": _rate(fix.after_per_s) if fix.profile else None,
            "hours_before": None if fix.hours_before is None else text.figure(fix.hours_before.mid),
            "hours_after": None if fix.hours_after is None else text.figure(fix.hours_after.mid),
            "interval": None if fix.gain is None else _interval(fix.gain),
            "gain": None if fix.gain is None else f"×{fix.gain.mid:.2f}",
            "gains": draw_gains(fix),
            "tried": [_line(attempt) for attempt in fix.tried],
            "arms": draw_arms(fix, material.trials),
            "losses": draw_losses(fix, material.trials),
            "ceiling": tuple(_ceiling(fix)),
            "quality": tuple(_quality(fix)),
            "took": text.duration(fix.took_s),
            "bars": bars,
            "profile": [f"{name} = {value}" for name, value in fix.profile.items()],
        },
        data=chart_data(None if before is None else before.timeline),
    )


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else text.figure(per_s)


def _interval(gain: MeasuredGain) -> dict[str, object]:
    return {
        "confidence": f"{gain.confidence:.0%}",
        "low": f"×{gain.low:.2f}",
        "high": f"×{gain.high:.2f}",
        "before": gain.trials[0],
        "after": gain.trials[1],
    }


def _line(attempt: Tried) -> dict[str, Any]:
    gain, predicted = attempt.gain, attempt.planned.predicted
    return {
        "name": remedy_with_value(attempt.planned),
        "safety": attempt.planned.safety,
        "title": attempt.planned.title,
        "predicted": "–" if predicted is None else f"×{predicted.mid:.2f}",
        "measured": "–" if gain is None else text.with_interval(gain),
        "state": attempt.outcome.replace(" ", "_"),
        "why": attempt.why,
        "identity": None if attempt.identity is None else show(attempt.identity.sentence),
    }


def _ceiling(fix: Fix) -> Iterator[dict[str, Any]]:
    """Rates, with their widths in percent of the longest."""
    found = fix.ceiling
    if found is None:
        return
    rates = [
        ("ceiling_achieved", found.achieved_per_s, "achieved"),
        ("ceiling_compute", found.compute_per_s, ""),
        ("ceiling_feed", found.feed_per_s, ""),
    ]
    most = max(rate for _, rate, _ in rates if rate is not None)
    for name, rate, css in rates:
        if rate is not None:
            width = round(100 * rate / most, 2)
            yield {"name": name, "figure": text.figure(rate), "width": width, "css": css}


def _quality(fix: Fix) -> Iterator[tuple[str, str, Markup]]:
    """What was looked at, what came out, and the sentence about it."""
    found = fix.quality
    if (identity := found.identity) is not None:
        yield "quality_identity", _key(identity.verdict), show(identity.sentence)
    if (loss := found.envelope) is not None:
        yield "quality_envelope", _key(loss.verdict), show(loss.sentence)
    if (metric := found.metric) is not None:
        yield "quality_metric", _key(metric.verdict), show(metric.sentence)


def _with_full_stop(sentence: Message) -> Markup:
    translated = chinese_if_known(sentence)
    return in_both(f"{english(sentence)}.", None if translated is None else f"{translated}。")


def _key(verdict: str) -> str:
    return f"proof_{verdict.replace(' ', '_')}"


def _before_after(material: FixMaterial) -> list[tuple[str, Bar]]:
    """Both steps to one scale: a sample's worth of each, where the batch was changed."""
    if material.before is None or material.after is None:
        return []
    both = [("step_before", material.before.report), ("step_after", material.after)]
    lengths = [_seconds(report) for _, report in both]
    if not all(lengths):
        return []
    return [
        (name, phase_bar(report, name, length / max(lengths)))
        for (name, report), length in zip(both, lengths, strict=True)
    ]


def _seconds(report: RunReport) -> float:
    rates = report.throughput
    rate = rates.samples_per_s or rates.steps_per_s
    return 1.0 / rate if rate else 0.0


# The drawings of a proof: gains with their intervals, step times by arm, losses in the band of the bare script.


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
    gains = [attempt.gain for attempt in fix.tried if attempt.gain is not None]
    # One that was not measured counts as no gain.
    lows = [max(gain.low, 1e-6) for gain in gains] + [1.0] * (len(gains) < len(fix.tried))
    highs = [gain.high for gain in gains] + [1.0] * (len(gains) < len(fix.tried))
    high = max(1.3, min(max(highs), _MOST * max(mids, default=1.0)))
    low = min(0.9, max(min(lows), _LEAST * min([1.0, *mids])))

    def at(value: float) -> float:
        place = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return round(100 * min(1.0, max(0.0, place)), 2)

    ticks = tuple((at(tick), f"×{tick:g}") for tick in _TICKS if low * 1.02 < tick < high * 0.98)
    return Gains(at(1.0), ticks, tuple(_gain_row(attempt, at) for attempt in fix.tried))


def _gain_row(tried: Tried, at: Callable[[float], float]) -> Interval:
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
            by_arm.setdefault(_arm_key(trial.remedies), []).append(trial)
    profile = _arm_key(fix.profile)
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


def _arm_key(remedies: Mapping[str, object]) -> str:
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


def _edge(
    curves: Sequence[Sequence[float | None]],
    pick: Callable[[Sequence[float]], float],
    point: Callable[[int, float], str],
) -> Iterator[str]:
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
