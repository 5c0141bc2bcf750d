"""Finds the batch size from which on larger ones no longer pay: doubled while that gains, halved back if it fails."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

from flatout.records.tune import Ask, Knob, Point
from flatout.tune.halving import Lengths, Strategy, finals
from flatout.tune.objective import Objective

# What twice the batch must gain in samples/s to be worth its memory and its effect on training.
LEAST_GAIN = 1.03


def knee(knob: Knob, objective: Objective, lengths: Lengths) -> Strategy:
    values = sorted(knob.values)
    points: list[Point] = []
    at = yield from _try(knob, values[0], lengths, points)
    good = values[0] if _speed(at, objective) else None
    last = at
    for value in _doublings(values):
        point = yield from _try(knob, value, lengths, points)
        if not _speed(point, objective):
            # Sizes that the memory model rules out cost nothing, so this asks for few trials.
            yield from _largest_that_fits(knob, [one for one in values if (good or 0) < one < value], lengths, points)
            break
        if good is not None and not _pays(last, point, good, value, objective):
            if _is_sure(last, point):
                break
            # Noise may hide the gain. The long trials would be made of these two anyway.
            last, point = yield [Ask(one.setting, lengths.long) for one in (last, point)]
            if not _pays(last, point, good, value, objective):
                break
        good, last = value, point
    yield from finals(points, lengths, objective, knob)


def _pays(before: Point, after: Point, small: float, large: float, objective: Objective) -> bool:
    first, second = _speed(before, objective), _speed(after, objective)
    if not first or not second:
        return False
    return bool((second / first) ** (1 / math.log2(large / small)) >= LEAST_GAIN)


def _is_sure(before: Point, after: Point) -> bool:
    """Whether twice the error of their ratio is less than the gain that is looked for."""
    if before.error is None or after.error is None:
        return False
    return 2 * math.hypot(before.error, after.error) < LEAST_GAIN - 1


def _doublings(values: Sequence[float]) -> list[float]:
    """Each at least twice the one before; the last of all too, since it may be as far as the user wants to go."""
    found = [values[0]]
    for value in values[1:]:
        if value >= 2 * found[-1]:
            found.append(value)
    return found[1:] + ([values[-1]] if values[-1] != found[-1] else [])


def _try(
    knob: Knob, value: float, lengths: Lengths, points: list[Point]
) -> Generator[Sequence[Ask], Sequence[Point], Point]:
    (point,) = yield [Ask({knob.name: value}, lengths.short)]
    points.append(point)
    return point


def _largest_that_fits(knob: Knob, between: Sequence[float], lengths: Lengths, points: list[Point]) -> Strategy:
    low, high = 0, len(between)
    while low < high:
        middle = (low + high) // 2
        point = yield from _try(knob, between[middle], lengths, points)
        if point.why:
            high = middle
        else:
            low = middle + 1


def _speed(point: Point, objective: Objective) -> float:
    speed = objective.speed(point)
    return 0.0 if speed is None or objective.obstacle(point) else speed
