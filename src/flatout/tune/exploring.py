"""Too many settings to try them all: a third at random, then neighbours of the best. Needs nothing installed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from flatout.records.tune import Ask, Knob, Point, Setting
from flatout.tune.halving import Lengths, Strategy, confirmed
from flatout.tune.objective import Objective
from flatout.tune.space import index, key, ladder

SEED = 20_240_229
_MOST_DRAWS = 1000


def exploring(knobs: Sequence[Knob], objective: Objective, lengths: Lengths, most: int, width: int) -> Strategy:
    """`most` settings in all, `width` at a time."""
    drawing = random.Random(SEED)
    points: dict[str, Point] = {}
    while len(points) < most:
        room = min(width, most - len(points))
        known = set(points)
        wanted: list[Setting] = []
        while len(wanted) < room:
            found = _next(knobs, list(points.values()), objective, known, len(points) < most / 3, drawing)
            if found is None:
                break
            known.add(key(found))
            wanted.append(found)
        if not wanted:
            break  # all settings are known
        for point in (yield [Ask(setting, lengths.short) for setting in wanted]):
            points[key(point.setting)] = point
    yield from confirmed(list(points.values()), lengths, objective)


def _next(
    knobs: Sequence[Knob],
    points: Sequence[Point],
    objective: Objective,
    known: set[str],
    at_random: bool,
    drawing: random.Random,
) -> Setting | None:
    if not at_random:
        for point in sorted(points, key=objective.score, reverse=True):
            around = [setting for setting in _neighbours(knobs, point.setting) if key(setting) not in known]
            if around:
                return drawing.choice(around)
    for _ in range(_MOST_DRAWS):
        drawn: Setting = {knob.name: drawing.choice(knob.values) for knob in knobs}
        if key(drawn) not in known:
            return drawn
    return None


def _neighbours(knobs: Sequence[Knob], setting: Setting) -> Iterator[Setting]:
    """One knob turned: a number to the next one, anything else to any other."""
    for knob in knobs:
        values = ladder(knob)
        at = index(knob, setting[knob.name])
        near = values[max(0, at - 1) : at] + values[at + 1 : at + 2] if knob.is_ordered else values
        yield from ({**setting, knob.name: value} for value in near if value != setting[knob.name])
