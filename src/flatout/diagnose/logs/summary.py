"""A training log in one record, and its pace over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.logs.pace import Events, Pace, between_bars, late, pace_of, pauses_of, stalls_of
from flatout.diagnose.logs.reader import Log, in_order
from flatout.diagnose.logs.readings import Reading
from flatout.records.logs import LogComparison, LogPoint, LogSummary, Stall, Trend
from flatout.records.message import Message, message, verbatim

_MOST_POINTS = 120
# A change of pace below this is not worth a word, and neither is one that chance explains.
_LEAST_CHANGE = 0.05
_SURE = 3.0
_DRAWS = 2000
_FLAT = 0.05


def summarise_log(log: Log, batch: float | None = None) -> LogSummary:
    """The log in one record; `batch` is the samples of a step if somebody told us."""
    readings = in_order(log.readings)
    told = batch if batch is not None else log.batch.size if log.batch else None
    pace = pace_of(readings, told)
    size, words = _batch(log, pace, readings, batch)
    events = Events(log.events)
    late_s, beside = late(pace), between_bars(pace, readings, events)
    stalls = [*stalls_of(pace, late_s, events), *beside]
    duration_s = _duration_s(pace, beside)
    step_s = None if pace.counts_samples else pace.typical_s
    whole = _whole_it_per_s(pace, duration_s)
    samples = _samples_per_s(pace, size)
    share, data_ms = _data(pace)
    known_steps = pace.step[np.isfinite(pace.step)]
    losses = [reading.loss for reading in readings if reading.loss is not None]
    return LogSummary(
        file=log.file,
        format=log.format,
        readings=len(readings),
        lines=log.lines,
        first_step=float(known_steps[0]) if len(known_steps) else None,
        last_step=float(known_steps[-1]) if len(known_steps) else None,
        duration_s=duration_s,
        it_per_s=None if step_s is None else 1.0 / step_s,
        whole_it_per_s=whole,
        samples_per_s=samples,
        whole_samples_per_s=samples * whole * step_s if samples and whole and step_s else None,
        batch_size=size,
        batch_from=words,
        step_ms=None if step_s is None else 1e3 * step_s,
        data_ms=data_ms,
        data_share=share,
        trend=_trend(pace, late_s),
        stalls=tuple(sorted(stalls, key=lambda stall: -stall.lost_s)[:_MOST_POINTS]),
        pauses=pauses_of(stalls, duration_s, pace),
        points=_points(pace, size),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
    )


def _whole_it_per_s(pace: Pace, duration_s: float | None) -> float | None:
    steps = float(pace.span[1:].sum())
    return steps / duration_s if duration_s and steps and not pace.counts_samples else None


def _samples_per_s(pace: Pace, batch: float | None) -> float | None:
    if batch is not None and not pace.counts_samples:
        return batch / pace.typical_s
    printed = pace.samples_per_s[np.isfinite(pace.samples_per_s)]
    return float(np.median(printed)) if len(printed) else None


def _batch(
    log: Log, pace: Pace, readings: Sequence[Reading], given: float | None
) -> tuple[float | None, Message | None]:
    """The samples of a step, and where they are known from."""
    if given is not None:
        return given, message("logs.batch_given")
    printed = [reading.batch for reading in readings if reading.batch]
    if printed:
        return float(np.median(printed)), message("logs.batch_printed")
    both = np.isfinite(pace.samples_per_s)
    if both.any() and not pace.counts_samples and any(r.it_per_s or r.time_s for r in readings):
        sizes = (pace.samples_per_s * pace.step_s)[both]
        return float(round(float(np.median(sizes)))) or None, message("logs.batch_from_rates")
    return (log.batch.size, verbatim(log.batch.words)) if log.batch else (None, None)


def _data(pace: Pace) -> tuple[float | None, float | None]:
    """The share of the steps' time that waited for data, and its milliseconds a step."""
    known = np.isfinite(pace.data_s) & np.isfinite(pace.step_s)
    if not known.any():
        return None, None
    spans = pace.span[known]
    share = float((pace.data_s[known] * spans).sum() / max(1e-12, float((pace.step_s[known] * spans).sum())))
    # More than a step can only be the sum over several: better no figure than a wrong one.
    return (share, 1e3 * float(np.median(pace.data_s[known]))) if share <= 1.0 else (None, None)


def _duration_s(pace: Pace, beside: Sequence[Stall]) -> float | None:
    """By the clock where there is one, with what it did not see; else what the steps took as printed."""
    known = pace.t_s[np.isfinite(pace.t_s)]
    if len(known) >= 2 and known[-1] > known[0]:
        return float(known[-1] - known[0]) + sum(stall.lost_s for stall in beside)
    if len(pace.step_s) < 2:
        return None
    return float(np.nansum((pace.step_s * pace.span)[1:]))


def _trend(pace: Pace, late_s: dict[int, float]) -> Trend | None:
    usable = np.isfinite(pace.step_s)
    usable[[0, *late_s]] = False
    rates = 1.0 / pace.step_s[usable]
    if len(rates) < 8:
        return None
    rates = np.array([np.median(part) for part in np.array_split(rates, min(len(rates), 100))])
    first, second = np.triu_indices(len(rates), 1)
    differences = rates[second] - rates[first]
    change = float(np.median(differences / (second - first))) * (len(rates) - 1) / float(np.median(rates))
    count = len(rates)
    # Kendall's test: how many pairs rise, against how many would by chance.
    score = float(np.sign(differences).sum()) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return Trend(change, steady=abs(change) < _LEAST_CHANGE or abs(score) < _SURE)


def _points(pace: Pace, batch: float | None) -> tuple[LogPoint, ...]:
    points = []
    for part in np.array_split(np.arange(len(pace.line)), min(len(pace.line), _MOST_POINTS)):
        known = part[np.isfinite(pace.step_s[part])]
        if not len(known):
            continue
        spans = pace.span[known]
        rate = float(spans.sum() / (pace.step_s[known] * spans).sum())
        printed = pace.samples_per_s[known][np.isfinite(pace.samples_per_s[known])]
        share = pace.data_s[known] / pace.step_s[known]
        share = share[np.isfinite(share)]
        samples = rate * batch if batch and not pace.counts_samples else None
        if samples is None and len(printed):
            samples = float(np.median(printed))
        points.append(
            LogPoint(
                step=_known(pace.step[part[-1]]),
                t_s=_known(pace.t_s[part[-1]]),
                it_per_s=None if pace.counts_samples else rate,
                samples_per_s=samples,
                data_share=float(np.clip(share.mean(), 0, 1)) if len(share) else None,
            )
        )
    return tuple(points)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# Two logs side by side, by samples a second: it/s of different batches do not compare.


def compare_logs(first: LogSummary, second: LogSummary) -> LogComparison | None:
    """The second against the first; None where the two logs tell different things."""
    it_ratio = second.it_per_s / first.it_per_s if first.it_per_s and second.it_per_s else None
    same_batch = first.batch_size == second.batch_size if first.batch_size and second.batch_size else None
    if first.samples_per_s and second.samples_per_s:
        by: Literal["samples/s", "it/s"] = "samples/s"
        rates = (first.samples_per_s, second.samples_per_s)
    elif first.it_per_s and second.it_per_s:
        by, rates = "it/s", (first.it_per_s, second.it_per_s)
    else:
        return None
    ratio = rates[1] / rates[0]
    low, high = _interval(_rates(first), _rates(second), ratio)
    sentence = _sentence(ratio, (low, high), by, rates)
    hint = _hint(ratio, it_ratio, by, same_batch)
    return LogComparison(by, ratio, low, high, it_ratio, same_batch, sentence, hint)


def _rates(log: LogSummary) -> NDArray[np.float64]:
    """Relative to the log's own typical pace, so that the unit plays no part."""
    rates = np.array([point.it_per_s or point.samples_per_s or np.nan for point in log.points])
    rates = rates[np.isfinite(rates)]
    return rates / np.median(rates) if len(rates) else np.ones(1)


def _interval(first: NDArray[np.float64], second: NDArray[np.float64], ratio: float) -> tuple[float, float]:
    """95% by resampling the stretches of both logs."""
    draw = np.random.default_rng(0)
    medians = [np.median(draw.choice(rates, (_DRAWS, len(rates))), axis=1) for rates in (first, second)]
    low, high = np.quantile(ratio * medians[1] / medians[0], [0.025, 0.975])
    return min(ratio, float(low)), max(ratio, float(high))


def _sentence(ratio: float, interval: tuple[float, float], by: str, rates: tuple[float, float]) -> Message:
    low, high = interval
    first, second = rates
    if low <= 1.0 <= high and interval != (1.0, 1.0):
        return message("logs.no_difference", change=100 * (ratio - 1), by=by)
    if ratio == 1.0:
        return message("logs.same_pace", rate=first, by=by)
    facts = {"change": abs(100 * (ratio - 1)), "first": first, "second": second, "by": by}
    return message("logs.second_faster", **facts) if ratio > 1 else message("logs.second_slower", **facts)


def _hint(ratio: float, it_ratio: float | None, by: str, same_batch: bool | None) -> Message | None:
    if by == "it/s" and same_batch is None:
        return message("logs.batches_unknown")
    if same_batch is not False or it_ratio is None:
        return None
    is_flat = abs(ratio - 1) <= _FLAT
    return message("logs.batches_differ_flat" if is_flat else "logs.batches_differ", change=100 * (it_ratio - 1))
