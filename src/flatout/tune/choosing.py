"""Which search suits which knobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flatout.records.tune import Knob
from flatout.tune import model_based
from flatout.tune.exploring import exploring
from flatout.tune.halving import Lengths, Strategy, halved
from flatout.tune.knee import knee
from flatout.tune.objective import Objective
from flatout.tune.space import count, settings
from flatout.tune.unimodal import unimodal

# Settings that are all tried; above, a model says which.
GRID = 12
_RISE_AND_FALL = ("num_workers", "prefetch_factor")
_LEAST_TRIALS, _MOST_TRIALS = 12, 40


@dataclass(frozen=True, slots=True)
class Method:
    """`words` tell the user how it is searched."""

    words: str
    strategy: Strategy


def method(knobs: Sequence[Knob], objective: Objective, lengths: Lengths, most: int | None, width: int) -> Method:
    """`most` is how many settings the user wants to be tried, None where that is ours to say."""
    only = knobs[0] if len(knobs) == 1 and knobs[0].is_ordered else None
    # A metric has to be measured wherever it may differ, so nothing can be told from a curve of speed.
    by_speed = objective.goal == "samples/s" and (
        objective.metric is None or all(k.safety == "lossless" for k in knobs)
    )
    if only is not None and by_speed and only.meaning in _RISE_AND_FALL and len(only.values) > 2:
        return Method(f"the top of the curve over {only.name}", unimodal(only, objective, lengths))
    if only is not None and by_speed and only.meaning == "batch_size" and min(only.values) > 0:
        return Method(f"doubled while {only.name} pays and fits", knee(only, objective, lengths))
    total = count(knobs)
    if total <= min(GRID, most or GRID):
        return Method(f"all {total} settings", halved(list(settings(knobs)), lengths, objective))
    most = min(total, most if most is not None else max(_LEAST_TRIALS, min(_MOST_TRIALS, total // 5)))
    if model_based.is_there():
        words = f"{most} of {total:,} settings, chosen by a model of the others (Optuna)"
        return Method(words, model_based.model_based(knobs, objective, lengths, most, width))
    words = f"{most} of {total:,} settings, at random and around the best (pip install 'flatout[tune]' chooses better)"
    return Method(words, exploring(knobs, objective, lengths, most, width))
