"""What the user wants: which figure decides, and which limits hold. `--constraint 'memory<70GB'`, 'metric>31.5'."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.errors import FlatoutError
from flatout.experiment.request import check_metric
from flatout.records.message import NOTHING, Message, message
from flatout.records.tune import Goal, Metric, Point

_FORM = re.compile(r"\s*(memory|metric|samples/s|steps/s)\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*([kKmMgGtT]?(?:i?[bB])?)\s*")
# By its name, where the user does not say: errors and losses are better low.
_BETTER_LOW = re.compile(r"(?<![a-z])(?:loss|err|mse|mae|rmse|perplexity|ppl|fid|lpips|wer|cer|bpc|nll|epe)", re.I)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Constraint:
    """`figure` must stay on its side of `limit`, in bytes or a second."""

    text: str
    figure: str
    is_upper: bool
    limit: float

    def obstacle(self, point: Point) -> Message | None:
        """Why the point will not do, if so."""
        value = figure(point, self.figure)
        if value is None:
            return message("tune.limit_unmeasured", limit=self.text, figure=self.figure)
        keeps = value <= self.limit if self.is_upper else value >= self.limit
        return None if keeps else message("tune.breaks_limit", limit=self.text)


@dataclass(frozen=True, slots=True)
class Objective:
    goal: Goal
    metric: Metric | None
    constraints: tuple[Constraint, ...] = ()
    # "samples/s", or "steps/s" where samples cannot be counted.
    rate: str = "samples/s"

    def speed(self, point: Point) -> float | None:
        return figure(point, self.rate)

    def quality(self, point: Point) -> float | None:
        """The metric, turned so that more is better."""
        if self.metric is None or point.metric is None:
            return None
        return point.metric if self.metric.higher_is_better else -point.metric

    def score(self, point: Point) -> float:
        """More is better; minus infinity for what will not do or was not measured."""
        value = {
            "samples/s": self.speed(point),
            "metric": self.quality(point),
            "memory": None if point.memory_bytes is None else -point.memory_bytes,
        }[self.goal]
        return float("-inf") if value is None or self.obstacle(point) else value

    def obstacle(self, point: Point) -> Message:
        """Why the point cannot be used; empty where it can."""
        if point.why:
            return point.why
        return next((why for limit in self.constraints if (why := limit.obstacle(point)) is not None), NOTHING)

    @property
    def most_memory_bytes(self) -> float | None:
        limits = [
            constraint.limit for constraint in self.constraints if constraint.figure == "memory" and constraint.is_upper
        ]
        return min(limits, default=None)


def figure(point: Point, name: str) -> float | None:
    return {
        "memory": point.memory_bytes,
        "metric": point.metric,
        "samples/s": point.samples_per_s,
        "steps/s": point.steps_per_s,
    }[name]


def constraint(text: str) -> Constraint:
    """Raises FlatoutError where it cannot be understood."""
    found = _FORM.fullmatch(text)
    how = "write it as 'memory<70GB', 'metric>31.5' or 'samples/s>100'"
    if found is None:
        raise FlatoutError(f"--constraint {text!r}: {how}")
    name, sign, number, unit = found.groups()
    try:
        value = float(number)
    except ValueError:
        raise FlatoutError(f"--constraint {text!r}: {number!r} is no number; {how}") from None
    if unit and name != "memory":
        raise FlatoutError(f"--constraint {text!r}: {unit!r} is a unit of memory; {how}")
    power = _POWERS.get(unit[:1].lower(), 0)
    scale = (1024.0 if "i" in unit.lower() else 1000.0) ** power
    return Constraint(re.sub(r"\s+", "", text), name, sign.startswith("<"), value * scale)


def metric(pattern: str, higher: bool | None) -> Metric:
    """A pattern with one group. Raises FlatoutError."""
    check_metric(pattern)
    return Metric(pattern, _BETTER_LOW.search(pattern) is None if higher is None else higher)


# The Pareto front: points that no other dominates in speed, quality and memory. Figures within a hundredth of each
# other count as equal, since no trial tells them apart.

_STEP = math.log(1.01)


def pareto_front(points: Sequence[Point], objective: Objective) -> list[Point]:
    """Of usable points, the fastest first. A figure that was not measured in all of them does not count."""
    usable = [point for point in points if not objective.obstacle(point) and objective.speed(point) is not None]
    values = {id(point): _values(point, objective) for point in usable}
    columns = [n for n in range(3) if all(values[id(point)][n] is not None for point in usable)]
    found: list[Point] = []
    seen: set[tuple[float, ...]] = set()
    for point in sorted(usable, key=lambda point: objective.speed(point) or 0.0, reverse=True):
        own = tuple(float(values[id(point)][n] or 0.0) for n in columns)
        others = (tuple(float(values[id(other)][n] or 0.0) for n in columns) for other in usable)
        if own not in seen and not any(_dominates(other, own) for other in others):
            found.append(point)
            seen.add(own)
    return found


def _values(point: Point, objective: Objective) -> tuple[float | None, float | None, float | None]:
    speed, memory = _rounded(objective.speed(point)), _rounded(point.memory_bytes)
    return speed, None if memory is None else -memory, objective.quality(point)


def _rounded(value: float | None) -> float | None:
    return None if value is None or value <= 0 else round(math.log(value) / _STEP)


def _dominates(left: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return left != other and all(a >= b for a, b in zip(left, other, strict=True))
