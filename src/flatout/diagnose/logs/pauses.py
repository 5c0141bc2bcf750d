"""What a training lost to pauses between its readings: evaluation, checkpoints, the unexplained, and their rhythm."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np

from flatout.diagnose.logs.pace import Pace
from flatout.diagnose.logs.parsing import Event
from flatout.diagnose.logs.readings import Reading
from flatout.records.logs import PauseKind, Pauses, Stall

_KINDS: tuple[PauseKind, ...] = ("evaluation", "checkpoint", "pause")
# What a reading must be late by: so many typical steps, so many usual deviations, and this share of its own time.
_STEPS, _DEVIATIONS, _SHARE = 3.0, 5.0, 0.2


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
