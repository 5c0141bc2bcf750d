"""A training log in one record, and its pace over time: steps, seconds and rates on scales that go on."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.logs.reader import Event, Log, in_order
from flatout.diagnose.logs.readings import Reading
from flatout.errors import FlatoutError
from flatout.records.logs import LogComparison, LogPoint, LogSummary, PauseKind, Pauses, Stall, Trend
from flatout.records.message import Message, message, verbatim

Floats = NDArray[np.float64]
_ROUNDING = 0.015
_KINDS: tuple[PauseKind, ...] = ("evaluation", "checkpoint", "pause")
# What a reading must be late by: so many typical steps, so many usual deviations, and this share of its own time.
_STEPS, _DEVIATIONS, _SHARE = 3.0, 5.0, 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    """One entry a reading. `span` is the steps since the reading before; `gap_s` the wall time since it, else NaN."""

    line: NDArray[np.int64]
    # Place of the reading among all texts of the log.
    at: NDArray[np.int64]
    step: Floats
    t_s: Floats
    span: Floats
    gap_s: Floats
    step_s: Floats
    samples_per_s: Floats
    data_s: Floats
    # The finest difference of time that the log can tell.
    tick_s: float
    # The log tells samples a second alone: `step_s` is then of one sample.
    counts_samples: bool

    @property
    def typical_s(self) -> float:
        """The first reading has the start-up in it."""
        known = self.step_s[np.isfinite(self.step_s)]
        printed_s = float(np.median(known[1:] if len(known) > 2 else known))
        by_clock = (self.gap_s / self.span)[self.gap_s > 100 * self.tick_s]
        clock_s = float(np.median(by_clock)) if len(by_clock) else math.nan
        # "time: 0.134" is rounded; a clock that agrees with it is more exact.
        return clock_s if abs(clock_s / printed_s - 1) < _ROUNDING else printed_s


def pace_of(readings: Sequence[Reading], batch: float | None = None) -> Pace:
    """Steps and time go on where a bar or an epoch begins anew. `batch` is the samples of a step, where known."""
    step, t_s = _go_on([reading.step for reading in readings]), _times(readings)
    span = np.diff(step, prepend=np.nan)
    gap_s = np.diff(t_s, prepend=np.nan)
    span[~(span > 0)] = np.nan
    gap_s[~(gap_s >= 0)] = np.nan
    step_s, counts_samples = _step_seconds(readings, span, gap_s, batch)
    if not np.isfinite(step_s).any():
        raise FlatoutError("the steps in the log tell no pace: they have neither time stamps nor it/s; see --pattern")
    return Pace(
        line=np.array([reading.line for reading in readings], np.int64),
        at=np.array([reading.at for reading in readings], np.int64),
        step=step,
        t_s=t_s,
        span=np.where(np.isfinite(span), span, 1.0),
        gap_s=gap_s,
        step_s=step_s,
        samples_per_s=_column(readings, "samples_per_s"),
        data_s=_column(readings, "data_s"),
        tick_s=1.0 if np.all(t_s[np.isfinite(t_s)] % 1 == 0) else 1e-3,
        counts_samples=counts_samples,
    )


def _column(readings: Sequence[Reading], name: str) -> Floats:
    values = [getattr(reading, name) for reading in readings]
    return np.array([math.nan if value is None else value for value in values], np.float64)


def _go_on(values: Sequence[float | None]) -> Floats:
    """Counted on where a bar or an epoch begins at 0 again."""
    base = last = 0.0
    found = []
    for value in values:
        if value is not None:
            base += last if value < last else 0.0
            last = value
        found.append(math.nan if value is None else base + value)
    return np.array(found)


def _times(readings: Sequence[Reading]) -> Floats:
    """By time stamps where there are any: they also see what happens between two bars."""
    stamps = _column(readings, "stamp_s")
    if np.isfinite(stamps).sum() >= 2:
        since_first: Floats = stamps - stamps[np.isfinite(stamps)][0]
        return since_first
    return _go_on([reading.elapsed_s for reading in readings])


def _step_seconds(readings: Sequence[Reading], span: Floats, gap_s: Floats, batch: float | None) -> tuple[Floats, bool]:
    """Seconds of a step as printed, else by the clock, else by samples; and whether a sample had to be taken for it."""
    rate, time_s, samples = (_column(readings, name) for name in ("it_per_s", "time_s", "samples_per_s"))
    sizes = _column(readings, "batch")
    if batch is not None:
        sizes = np.full_like(sizes, batch)
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.where(rate > 0, 1.0 / rate, np.nan)
        if not _is_running_total(time_s):
            printed = np.where(np.isfinite(printed), printed, np.where(time_s > 0, time_s, np.nan))
        by_clock = np.where(gap_s > 0, gap_s / span, np.nan)
        by_samples = np.where(samples > 0, sizes / samples, np.nan)
        of_a_sample = np.where(samples > 0, 1.0 / samples, np.nan)
    for seconds in (printed, by_clock, by_samples):
        if np.isfinite(seconds).any():
            return seconds, False
    return of_a_sample, True


def _is_running_total(time_s: Floats) -> bool:
    """`time: 12.3` may also be the time since the start: then it never falls."""
    known = time_s[np.isfinite(time_s)]
    return len(known) > 3 and bool(np.all(np.diff(known) >= 0)) and known[-1] > 3 * known[0] + 1


# What a training lost to pauses between its readings: evaluation, checkpoints, the unexplained, and their rhythm.


def _events_between(events: Sequence[Event], first: int, last: int) -> Sequence[Event]:
    place = attrgetter("at")
    return events[bisect.bisect_left(events, first, key=place) : bisect.bisect_right(events, last, key=place)]


def late(pace: Pace) -> dict[int, float]:
    """Numbers of the readings that came later than the steps before them explain, and by how many seconds."""
    typical_s = pace.typical_s
    expected_s = pace.span * typical_s
    by_clock = np.isfinite(pace.gap_s)
    lost_s = np.where(by_clock, pace.gap_s - expected_s, (pace.step_s - typical_s) * pace.span)
    usual = lost_s[np.isfinite(lost_s)]
    deviation_s = 1.48 * float(np.median(np.abs(usual - np.median(usual)))) if len(usual) else 0.0
    least_s = np.maximum(_STEPS * typical_s + _DEVIATIONS * deviation_s, _SHARE * expected_s)
    least_s = np.maximum(least_s, np.where(by_clock, 2 * pace.tick_s, 0.0))
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero(lost_s > least_s)
    return {int(number): float(lost_s[number]) for number in found if number}


def stalls_of(pace: Pace, late_s: dict[int, float], events: Sequence[Event]) -> list[Stall]:
    """The late readings, with what the log says was done in between."""
    return [
        Stall(
            int(pace.line[number]),
            _known(pace.step[number]),
            lost_s,
            _kind(_events_between(events, int(pace.at[number - 1]), int(pace.at[number]))),
        )
        for number, lost_s in late_s.items()
    ]


def between_bars(pace: Pace, readings: Sequence[Reading], events: Sequence[Event]) -> list[Stall]:
    """A bar ends, another says how long evaluation took, and the next one begins: no clock of the training sees it."""
    stalls = []
    for at in range(1, len(readings)):
        before, after = readings[at - 1], readings[at]
        if after.elapsed_s is None or after.stamp_s is not None or not _is_new_bar(before, after):
            continue
        took_s = _told_s(_events_between(events, before.at, after.at))
        if took_s > 0:
            stalls.append(Stall(after.line, _known(pace.step[at - 1]), took_s, "evaluation"))
    return stalls


def _is_new_bar(before: Reading, after: Reading) -> bool:
    return (after.elapsed_s or 0.0) < (before.elapsed_s or 0.0) or (after.step or 0.0) < (before.step or 0.0)


def _told_s(events: Sequence[Event]) -> float:
    """A bar is redrawn: of those growing in a row only the last counts."""
    total = last = 0.0
    for event in events:
        if event.took_s is None:
            continue
        if event.took_s < last:
            total += last
        last = event.took_s
    return total + last


def _kind(events: Sequence[Event]) -> PauseKind:
    kinds = {event.kind for event in events}
    return "evaluation" if "evaluation" in kinds else "checkpoint" if "checkpoint" in kinds else "pause"


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def pauses_of(stalls: Sequence[Stall], duration_s: float | None, pace: Pace) -> tuple[Pauses, ...]:
    found = []
    for kind in _KINDS:
        own = [stall for stall in stalls if stall.kind == kind]
        if not own:
            continue
        longest = max(own, key=lambda stall: stall.lost_s)
        total_s = sum(stall.lost_s for stall in own)
        found.append(
            Pauses(
                kind=kind,
                count=len(own),
                every_steps=_rhythm(own, pace),
                mean_s=total_s / len(own),
                longest_s=longest.lost_s,
                longest_line=longest.line,
                share=min(1.0, total_s / duration_s) if duration_s else None,
            )
        )
    return tuple(found)


def _rhythm(stalls: Sequence[Stall], pace: Pace) -> float | None:
    """The steps between two of them, if most keep to it. A reading apart is as exact as a log can tell."""
    steps = np.array([stall.step for stall in stalls if stall.step is not None])
    if len(steps) < 3:
        return None
    gaps = np.diff(np.sort(steps))
    middle = float(np.median(gaps))
    close = np.abs(gaps - middle) <= max(0.1 * middle, float(np.median(pace.span)))
    return middle if middle > 0 and close.mean() >= 0.7 else None


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
    late_s, beside = late(pace), between_bars(pace, readings, log.events)
    stalls = [*stalls_of(pace, late_s, log.events), *beside]
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
