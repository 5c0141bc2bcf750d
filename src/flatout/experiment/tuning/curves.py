"""Finds the batch size from which on larger ones no longer pay: doubled while that gains, halved back if it fails."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from statistics import median

from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.strategies import Lengths, Strategy, confirm_finalists
from flatout.records.tune import Ask, Knob, Point

# What twice the batch must gain in samples/s to be worth its memory and its effect on training.
LEAST_GAIN = 1.03


def find_knee(knob: Knob, objective: Objective, lengths: Lengths) -> Strategy:
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
    yield from confirm_finalists(points, lengths, objective, knob)


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


# The top of a curve that rises, levels off and falls: workers, or prefetched batches.
#
# Such a curve lies below the lines through what was measured on either side: twice the workers make at most twice the
# batches, and what levels off does not rise again. The next trial goes where these lines leave most room, and the
# search ends when they leave no more than a few per cent. No workers at all is a separate case, tried where few will
# do.

# What the lines may leave above the best, less than which is not worth a trial; more where trials are noisy.
_ROOM, _MOST_ROOM = 0.03, 0.05
# Workers at whose number a training hardly waits for its data.
_FEW = 2
# Neighbours in this ratio are close.
_CLOSE = 1.5


def find_top(knob: Knob, objective: Objective, lengths: Lengths) -> Strategy:
    own = {float(value): value for value in knob.values}
    counted = sorted(value for value in own if value > 0)
    none = [value for value in own if value <= 0]
    wanted = _first(counted)
    points: list[Point] = []
    speeds: dict[float, float] = {}
    while wanted:
        found = yield [Ask({knob.name: own[value]}, lengths.short) for value in wanted]
        points += found
        # What failed is as slow as can be: the top lies elsewhere.
        speeds |= {value: _speed(point, objective) for value, point in zip(wanted, found, strict=True) if value > 0}
        following = Curve(speeds, _room(points)).next_of(counted)
        wanted = [] if following is None else [following]
        if not wanted and none and max(speeds, key=lambda value: speeds[value]) <= _FEW:
            # Where so few will do, none may do as well, and costs nothing.
            wanted, none = none, []
    yield from confirm_finalists(points, lengths, objective, knob)


class Curve:
    """What is known of it: speeds by value. Less than `room` of a speed is no difference."""

    def __init__(self, speeds: Mapping[float, float], room: float = _ROOM) -> None:
        self._speeds = speeds
        self._values = sorted(speeds)
        self._room = 1 + room

    def next_of(self, values: Sequence[float]) -> float | None:
        """Where it may still hide more than is known; None where nowhere."""
        if len(self._values) == 2:
            return self._where_it_levels_off(values)
        found: float | None = None
        most = max(self._speeds.values(), default=0.0) * self._room
        for left, right in itertools.pairwise(self._values):
            between = {value: self._bound(value, left, right) for value in values if left < value < right}
            if between and max(between.values()) > most:
                most = max(between.values())
                # Where both lines limit it, at their crossing; where only one does, halfway in ratio.
                is_closed = self._is_trusted(left, right)
                found = max(between, key=between.__getitem__) if is_closed else _middle(list(between), left, right)
        return found

    def _where_it_levels_off(self, values: Sequence[float]) -> float | None:
        """With its two ends known: so many times the first as the last is faster, if that many are between them."""
        first, last = self._values
        between = [value for value in values if first < value < last]
        if not between:
            return None
        times = self._speeds[last] / self._speeds[first] if self._speeds[first] else 0.0
        enough = [value for value in between if value >= first * times * self._room]
        return enough[0] if enough and times > 1.5 else _middle(between, first, last)

    def _bound(self, value: float, left: float, right: float) -> float:
        """The lines that end at `left` and begin at `right` lie above what is between them."""
        before = self._neighbour(left, -1)
        # Nothing comes out of nothing: the first line begins at zero.
        rising = self._line(value, before, left) if before is not None else self._speeds[left] * value / left
        behind = self._neighbour(right, 1)
        is_bound = behind is not None and self._is_trusted(left, right)
        return min(rising, self._line(value, right, behind)) if is_bound and behind is not None else rising

    def _is_trusted(self, left: float, right: float) -> bool:
        """Whether the line behind `right` bounds what lies before it: far from its top the curve falls in a bow.

        It does where it lies above what was measured before it, and the points are close or the curve is level.
        """
        behind = self._neighbour(right, 1)
        if behind is None or self._line(left, right, behind) * self._room < self._speeds[left]:
            return False
        return right <= _CLOSE * left or self._is_level(right, behind)

    def _is_level(self, one: float, other: float) -> bool:
        first, second = self._speeds[one], self._speeds[other]
        return max(first, second) <= min(first, second) * self._room

    def _neighbour(self, value: float, side: int) -> float | None:
        at = self._values.index(value) + side
        return self._values[at] if 0 <= at < len(self._values) else None

    def _line(self, value: float, first: float, second: float) -> float:
        begin, end = self._speeds[first], self._speeds[second]
        return end + (end - begin) / (second - first) * (value - second)


def _room(points: Sequence[Point]) -> float:
    errors = [point.error for point in points if point.error is not None]
    return min(_MOST_ROOM, max(_ROOM, 2 * median(errors))) if errors else _ROOM


def _first(values: Sequence[float]) -> list[float]:
    """The ends."""
    return list(values) if len(values) <= 3 else [values[0], values[-1]]


def _middle(values: Sequence[float], left: float, right: float) -> float:
    middle = math.sqrt(left * right)
    return min(values, key=lambda value: abs(math.log(value / middle)))
