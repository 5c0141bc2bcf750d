"""The Pareto front: points that no other beats in speed, quality and memory at once.

Figures within a hundredth of each other count as equal, since no trial tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.records.tune import Point
from flatout.tune.objective import Objective

_STEP = math.log(1.01)


def front(points: Sequence[Point], objective: Objective) -> list[Point]:
    """Of usable points, the fastest first. A figure that was not measured in all of them does not count."""
    usable = [point for point in points if not objective.obstacle(point) and objective.speed(point) is not None]
    values = {id(point): _values(point, objective) for point in usable}
    columns = [n for n in range(3) if all(values[id(point)][n] is not None for point in usable)]
    found: list[Point] = []
    seen: set[tuple[float, ...]] = set()
    for point in sorted(usable, key=lambda point: objective.speed(point) or 0.0, reverse=True):
        own = tuple(float(values[id(point)][n] or 0.0) for n in columns)
        others = (tuple(float(values[id(other)][n] or 0.0) for n in columns) for other in usable)
        if own not in seen and not any(_beats(other, own) for other in others):
            found.append(point)
            seen.add(own)
    return found


def _values(point: Point, objective: Objective) -> tuple[float | None, float | None, float | None]:
    speed, memory = _rounded(objective.speed(point)), _rounded(point.memory_bytes)
    return speed, None if memory is None else -memory, objective.quality(point)


def _rounded(value: float | None) -> float | None:
    return None if value is None or value <= 0 else round(math.log(value) / _STEP)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
