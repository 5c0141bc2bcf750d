"""The pace of a log on scales that go on: steps, time, and seconds of a step, one entry a reading."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.logs.reader import Event
from flatout.diagnose.logs.readings import Reading
from flatout.errors import FlatoutError
from flatout.records.logs import PauseKind, Pauses, Stall

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
    step, t_s = _steps(readings), _times(readings)
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


def _steps(readings: Sequence[Reading]) -> Floats:
    base, last = 0.0, 0.0
    steps = []
    for reading in readings:
        if reading.step is None:
            steps.append(math.nan)
            continue
        if reading.step < last:
            base += last
        last = reading.step
        steps.append(base + reading.step)
    return np.array(steps)


def _times(readings: Sequence[Reading]) -> Floats:
    """By time stamps where there are any: they also see what happens between two bars."""
    stamps = _column(readings, "stamp_s")
    if np.isfinite(stamps).sum() >= 2:
        since_first: Floats = stamps - stamps[np.isfinite(stamps)][0]
        return since_first
    base, last = 0.0, 0.0
    times = []
    for reading in readings:
        if reading.elapsed_s is None:
            times.append(math.nan)
            continue
        if reading.elapsed_s < last:
            base += last
        last = reading.elapsed_s
        times.append(base + reading.elapsed_s)
    return np.array(times)


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


class Events:
    """Asks which events lie between two readings."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._places = [event.at for event in events]

    def between(self, first: int, last: int) -> Sequence[Event]:
        return self._events[bisect.bisect_left(self._places, first) : bisect.bisect_right(self._places, last)]


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


def stalls_of(pace: Pace, late_s: dict[int, float], events: Events) -> list[Stall]:
    """The late readings, with what the log says was done in between."""
    return [
        Stall(
            int(pace.line[number]),
            _known(pace.step[number]),
            lost_s,
            _kind(events.between(int(pace.at[number - 1]), int(pace.at[number]))),
        )
        for number, lost_s in late_s.items()
    ]


def between_bars(pace: Pace, readings: Sequence[Reading], events: Events) -> list[Stall]:
    """A bar ends, another says how long evaluation took, and the next one begins: no clock of the training sees it."""
    stalls = []
    for at in range(1, len(readings)):
        before, after = readings[at - 1], readings[at]
        if after.elapsed_s is None or after.stamp_s is not None or not _is_new_bar(before, after):
            continue
        took_s = _told_s(events.between(before.at, after.at))
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
