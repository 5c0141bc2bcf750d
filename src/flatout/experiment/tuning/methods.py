"""Too many settings to try them all: Optuna says which one next (a tree-structured Parzen estimator; extra `[tune]`).

With a metric it looks for the front of speed and quality at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.experiment.tuning.curves import find_knee, find_top
from flatout.experiment.tuning.objective import Objective
from flatout.experiment.tuning.strategies import (
    SEED,
    Lengths,
    Strategy,
    all_settings,
    confirm_best,
    count,
    explore,
    halve,
    ladder,
    setting_key,
)
from flatout.records.message import Message, message
from flatout.records.tune import Ask, Knob, Point

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
    def figure(one: Point) -> float:
        if name == "score" or objective.obstacle(one):
            return objective.score(one)
        quality = objective.quality(one)
        return -math.inf if quality is None else quality

    value = figure(point)
    if math.isfinite(value):
        return value
    worst = min((figure(one) for one in known if math.isfinite(figure(one))), default=0.0)
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
