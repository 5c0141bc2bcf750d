"""Which settings are tried, and in which order: every one, along a curve, by a model, or at random.

Short trials for all, long ones for the best: three times the steps for a third of the settings.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from flatout.experiment.tuning.objective import Objective, pareto_front
from flatout.records.message import Message, message
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


# The batch size from which on larger ones no longer pay: doubled while that gains, halved back if it fails.

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
            yield from _largest_that_fits(
                knob, [size for size in values if (good or 0) < size < value], lengths, points
            )
            break
        if good is not None and not _pays(last, point, good, value, objective):
            if _is_sure(last, point):
                break
            # Noise may hide the gain. The long trials would be made of these two anyway.
            last, point = yield [Ask(tried.setting, lengths.long) for tried in (last, point)]
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
        """Whether the line behind `right` bounds what lies before it: only near the top, where the curve is level."""
        behind = self._neighbour(right, 1)
        if behind is None or self._line(left, right, behind) * self._room < self._speeds[left]:
            return False
        return right <= _CLOSE * left or self._is_level(right, behind)

    def _is_level(self, value: float, other: float) -> bool:
        first, second = self._speeds[value], self._speeds[other]
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


# Too many settings to try them all: Optuna says which one next (a tree-structured Parzen estimator; extra `[tune]`).
# With a metric it looks for the front of speed and quality at once.

_AT_RANDOM = 8
# Suggestions in a row that were all measured before: then the model has made up its mind.
_MOST_KNOWN = 30


def has_optuna() -> bool:
    try:
        import optuna  # noqa: F401
    except ImportError:
        return False
    return True


def search_by_model(knobs: Sequence[Knob], objective: Objective, lengths: Lengths, most: int, width: int) -> Strategy:
    """`most` settings in all, `width` at a time."""
    study, distributions = _study(objective), _distributions(knobs)
    points: dict[str, Point] = {}
    while len(points) < most:
        asked: dict[str, tuple[Ask, list[Any]]] = {}
        known_in_a_row = 0
        while len(asked) < min(width, most - len(points)) and known_in_a_row < _MOST_KNOWN:
            trial = study.ask(distributions)
            setting = {knob.name: ladder(knob)[trial.params[knob.name]] for knob in knobs}
            name = setting_key(setting)
            if name in points:
                study.tell(trial, _values(points[name], objective, list(points.values())))
                known_in_a_row += 1
            else:
                asked.setdefault(name, (Ask(setting, lengths.short), []))[1].append(trial)
                known_in_a_row += len(asked[name][1]) > 1
        if not asked:
            break
        found = yield [ask for ask, _ in asked.values()]
        points |= dict(zip(asked, found, strict=True))
        for name, (_, trials) in asked.items():
            for trial in trials:
                study.tell(trial, _values(points[name], objective, list(points.values())))
    yield from confirm_best(list(points.values()), lengths, objective)


def _study(objective: Objective) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    count = len(_figures(objective))
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=_AT_RANDOM)
    return optuna.create_study(directions=["maximize"] * count, sampler=sampler)


def _distributions(knobs: Sequence[Knob]) -> Mapping[str, Any]:
    """Places on the ladder of values: of numbers the model may think in between, of others not."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        knob.name: IntDistribution(0, len(knob.values) - 1)
        if knob.is_ordered
        else CategoricalDistribution(list(range(len(knob.values))))
        for knob in knobs
    }


def _figures(objective: Objective) -> tuple[str, ...]:
    return ("score", "quality") if objective.metric is not None and objective.goal != "metric" else ("score",)


def _values(point: Point, objective: Objective, known: Sequence[Point]) -> list[float]:
    """What failed is told to be worse than all that did not, so that the model keeps away from it."""
    return [_value(point, objective, name, known) for name in _figures(objective)]


def _value(point: Point, objective: Objective, name: str, known: Sequence[Point]) -> float:
    def figure(seen: Point) -> float:
        if name == "score" or objective.obstacle(seen):
            return objective.score(seen)
        quality = objective.quality(seen)
        return -math.inf if quality is None else quality

    value = figure(point)
    if math.isfinite(value):
        return value
    worst = min((figure(seen) for seen in known if math.isfinite(figure(seen))), default=0.0)
    return worst - abs(worst) - 1.0


# Which search suits which knobs.

# Settings that are all tried; above, a model says which.
GRID = 12
_RISE_AND_FALL = ("num_workers", "prefetch_factor")
_LEAST_TRIALS, _MOST_TRIALS = 12, 40


@dataclass(frozen=True, slots=True)
class Method:
    """`words` tell the user how it is searched."""

    words: Message
    strategy: Strategy


def choose_method(
    knobs: Sequence[Knob], objective: Objective, lengths: Lengths, most: int | None, width: int
) -> Method:
    """`most` is how many settings the user wants to be tried, None where that is ours to say."""
    only = knobs[0] if len(knobs) == 1 and knobs[0].is_ordered else None
    # A metric has to be measured wherever it may differ, so nothing can be told from a curve of speed.
    by_speed = objective.goal == "samples/s" and (
        objective.metric is None or all(k.safety == "lossless" for k in knobs)
    )
    if only is not None and by_speed and only.meaning in _RISE_AND_FALL and len(only.values) > 2:
        return Method(message("tune.by_curve", knob=only.name), find_top(only, objective, lengths))
    if only is not None and by_speed and only.meaning == "batch_size" and min(only.values) > 0:
        return Method(message("tune.by_doubling", knob=only.name), find_knee(only, objective, lengths))
    total = count(knobs)
    if total <= min(GRID, most or GRID):
        return Method(message("tune.all_settings", count=total), halve(list(all_settings(knobs)), lengths, objective))
    most = min(total, most if most is not None else max(_LEAST_TRIALS, min(_MOST_TRIALS, total // 5)))
    if has_optuna():
        words = message("tune.by_model", most=most, count=total)
        return Method(words, search_by_model(knobs, objective, lengths, most, width))
    words = message("tune.at_random", most=most, count=total)
    return Method(words, explore(knobs, objective, lengths, most, width))
