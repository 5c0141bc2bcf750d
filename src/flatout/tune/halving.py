"""Short trials for all, long ones for the best: three times the steps for a third of the settings."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import median

from flatout.records.tune import Ask, Knob, Point, Setting
from flatout.tune.front import front
from flatout.tune.objective import Objective

# Yields trials it wants, all at once, and is sent what came of them, in the same order.
Strategy = Generator[Sequence[Ask], Sequence[Point], None]

TIMES = 3
# That get a long trial in any case.
_FEWEST = 2
_LEAST_STEPS = 8
# As fast as the best, as far as short trials tell.
_NEAR, _MOST_NEAR = 0.03, 0.08


@dataclass(frozen=True, slots=True)
class Lengths:
    """Steps of the trials that decide what is worth a look, and of those that decide."""

    short: int
    long: int

    @classmethod
    def of(cls, steps: int) -> Lengths:
        return cls(min(steps, max(_LEAST_STEPS, steps // TIMES)), steps)


def halved(settings: Sequence[Setting], lengths: Lengths, objective: Objective) -> Strategy:
    """Few settings get long trials at once: nothing could be left out."""
    if len(settings) <= _FEWEST:
        yield [Ask(setting, lengths.long) for setting in settings]
        return
    points = yield [Ask(setting, lengths.short) for setting in settings]
    yield from confirmed(points, lengths, objective)


def confirmed(points: Sequence[Point], lengths: Lengths, objective: Objective) -> Strategy:
    """Long trials for the best third of these."""
    if lengths.short < lengths.long:
        room = max(_FEWEST, math.ceil(len(points) / TIMES))
        yield [Ask(point.setting, lengths.long) for point in best_of(points, objective, room)]


def finals(points: Sequence[Point], lengths: Lengths, objective: Objective, knob: Knob) -> Strategy:
    """Long trials for the best of a single knob's values, and for the least that a short trial cannot tell from it."""
    usable = [point for point in points if not objective.obstacle(point)]
    if lengths.short == lengths.long or not usable:
        return
    errors = [point.error for point in points if point.error is not None]
    near = min(_MOST_NEAR, max(_NEAR, 3 * median(errors) if errors else _NEAR))
    best = max(usable, key=objective.score)
    close = [point for point in usable if objective.score(best) - objective.score(point) < near * objective.score(best)]
    least = min(close, key=lambda point: float(point.setting[knob.name]))
    yield [Ask(point.setting, lengths.long) for point in ([least] if least is best else [least, best])]


def best_of(points: Sequence[Point], objective: Objective, room: int) -> list[Point]:
    """Those that nothing beats in every respect come first, since each may be what somebody wants; then by score."""
    usable = [point for point in points if not objective.obstacle(point)]
    by_score = sorted(usable, key=objective.score, reverse=True)
    unbeaten = sorted(front(usable, objective), key=objective.score, reverse=True)
    # The best by the user's own goal is never left out for the front's sake.
    kept = by_score[:1] + [point for point in unbeaten if point not in by_score[:1]]
    kept += [point for point in by_score if point not in kept]
    return kept[:room]
