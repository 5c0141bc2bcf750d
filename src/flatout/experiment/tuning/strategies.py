"""Short trials for all, long ones for the best: three times the steps for a third of the settings."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from flatout.experiment.tuning.objective import Objective, pareto_front
from flatout.records.tune import Ask, Knob, Point, Setting

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


def halve(settings: Sequence[Setting], lengths: Lengths, objective: Objective) -> Strategy:
    """Few settings get long trials at once: nothing could be left out."""
    if len(settings) <= _FEWEST:
        yield [Ask(setting, lengths.long) for setting in settings]
        return
    points = yield [Ask(setting, lengths.short) for setting in settings]
    yield from confirm_best(points, lengths, objective)


def confirm_best(points: Sequence[Point], lengths: Lengths, objective: Objective) -> Strategy:
    """Long trials for the best third of these."""
    if lengths.short < lengths.long:
        room = max(_FEWEST, math.ceil(len(points) / TIMES))
        yield [Ask(point.setting, lengths.long) for point in best_of(points, objective, room)]


def confirm_finalists(points: Sequence[Point], lengths: Lengths, objective: Objective, knob: Knob) -> Strategy:
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
    unbeaten = sorted(pareto_front(usable, objective), key=objective.score, reverse=True)
    # The best by the user's own goal is never left out for the front's sake.
    kept = by_score[:1] + [point for point in unbeaten if point not in by_score[:1]]
    kept += [point for point in by_score if point not in kept]
    return kept[:room]


# All the settings that knobs allow.


def all_settings(knobs: Sequence[Knob]) -> Iterator[Setting]:
    """Every one of them. Numbers go upwards, so that what fits is seen before what may not."""
    for chosen in itertools.product(*map(ladder, knobs)):
        yield dict(zip((knob.name for knob in knobs), chosen, strict=True))


def count(knobs: Sequence[Knob]) -> int:
    return math.prod(len(knob.values) for knob in knobs)


def setting_key(setting: Setting) -> str:
    """Equal for equal settings."""
    return json.dumps(setting, sort_keys=True, default=str)


def ladder(knob: Knob) -> list[Any]:
    """The values in the order in which neighbours are alike."""
    return sorted(knob.values) if knob.is_ordered else list(knob.values)


# Too many settings to try them all: a third at random, then neighbours of the best. Needs nothing installed.

SEED = 20_240_229
_MOST_DRAWS = 1000


def explore(knobs: Sequence[Knob], objective: Objective, lengths: Lengths, most: int, width: int) -> Strategy:
    """`most` settings in all, `width` at a time."""
    drawing = random.Random(SEED)
    points: dict[str, Point] = {}
    while len(points) < most:
        is_at_random = len(points) < most / 3
        best = [] if is_at_random else sorted(points.values(), key=objective.score, reverse=True)
        known = set(points)
        wanted: list[Setting] = []
        while len(wanted) < min(width, most - len(points)):
            found = _propose(knobs, best, known, drawing)
            if found is None:
                break
            known.add(setting_key(found))
            wanted.append(found)
        if not wanted:
            break  # all settings are known
        for point in (yield [Ask(setting, lengths.short) for setting in wanted]):
            points[setting_key(point.setting)] = point
    yield from confirm_best(list(points.values()), lengths, objective)


def _propose(knobs: Sequence[Knob], best: Sequence[Point], known: set[str], drawing: random.Random) -> Setting | None:
    """A neighbour of the best that is not known yet, or any setting."""
    for point in best:
        around = [setting for setting in _neighbours(knobs, point.setting) if setting_key(setting) not in known]
        if around:
            return drawing.choice(around)
    for _ in range(_MOST_DRAWS):
        drawn: Setting = {knob.name: drawing.choice(knob.values) for knob in knobs}
        if setting_key(drawn) not in known:
            return drawn
    return None


def _neighbours(knobs: Sequence[Knob], setting: Setting) -> Iterator[Setting]:
    """One knob turned: a number to the next one, anything else to any other."""
    for knob in knobs:
        values = ladder(knob)
        at = values.index(setting[knob.name])
        near = values[max(0, at - 1) : at] + values[at + 1 : at + 2] if knob.is_ordered else values
        yield from ({**setting, knob.name: value} for value in near if value != setting[knob.name])
