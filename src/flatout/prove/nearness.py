"""How close losses stay to those of a script that does not repeat itself to the bit.

Atomic additions and the like come out in another order each time. What that does begins with a rounding error and grows
from step to step; other batches, or the same in another order, are far away at once. So the first steps tell: as long
as the script's own runs stay close together, a remedy that changes nothing stays as close to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flatout.records.trial import Trial

# All in shares of the loss. Runs of the script that are farther apart tell nothing any more.
_CLOSE = 1e-3
# What rounding makes of a loss, and how much farther than from each other one more run may be from the nearest.
_ROUNDING, _TIMES = 2e-5, 4.0
# Far away right after a step that was within rounding: no rounding error grows by so much in one step.
_FAR, _SAME = 5e-3, 1e-4
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Nearness:
    """For how many steps it stayed as close as the script to itself, and how close that was."""

    verdict: Literal["alike", "far", "unknown"]
    steps: int
    apart: float
    # The losses at the step where it is far away: the nearest of the script, and this one.
    values: tuple[float, float] | None = None


def nearness(bare: Sequence[Trial], changed: Trial) -> Nearness:
    """`bare` are runs of the script as it is, two at least."""
    apart, before, steps = 0.0, 0.0, 0
    for losses in zip(*(trial.losses for trial in (*bare, changed)), strict=False):
        known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if len(known) < len(losses) or not any(known):
            break
        *own, ours = known
        size = max(map(abs, own))
        now = max(apart, (max(own) - min(own)) / size) if size else math.inf
        if now > _CLOSE:
            break
        nearest = min(own, key=lambda loss: abs(loss - ours))
        away = abs(ours - nearest) / size
        if away > _FAR and before <= _ROUNDING and now <= _SAME:
            return Nearness("far", steps, apart, (nearest, ours))
        if away > max(_ROUNDING, _TIMES * now):
            break
        apart, before, steps = now, away, steps + 1
    return Nearness("alike" if steps >= _FEWEST else "unknown", steps, apart)
