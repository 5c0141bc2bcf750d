"""How much is left: what was achieved against what the device alone, and the loader alone, can do.

The device alone is the same training on batches that lie on the device already; the loader alone is asked for its
batches as fast as it can. No training is faster than the slower of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from flatout.experiment.statistics.intervals import CONFIDENCE, MOST, calibrate, compare_arms, interval_of_arm
from flatout.experiment.statistics.rates import arm_per_s, common_unit, keep_measured, units_of
from flatout.records.message import Message, message
from flatout.records.proof import By, Ceiling, Hours, Spread, Unit
from flatout.records.trial import Trial

# With less than this left there is nothing more to look for.
ENOUGH = 0.05

# By so much more than the ceiling nothing is faster: then it was not the ceiling that was measured.
_NO_CEILING = 1.1

Binds = Literal["compute", "feed"]
_ALONE: dict[Binds, Message] = {"compute": message("ceiling.device"), "feed": message("ceiling.loader")}
_UNITS: dict[Unit, Message] = {"sample": message("ceiling.samples"), "step": message("ceiling.steps")}


def measure_ceiling(
    achieved: Sequence[Trial],
    compute: Sequence[Trial],
    feed: Sequence[Trial],
    spread: Spread | None = None,
    by: By = "blocks",
) -> Ceiling | None:
    """None where nothing was achieved. A loader alone has no pauses: beside it only steps are compared."""
    achieved = keep_measured(achieved)
    if not achieved:
        return None
    found: dict[Binds, list[Trial]] = {"compute": keep_measured(compute), "feed": keep_measured(feed)}
    unit = common_unit([*achieved, *(trial for trials in found.values() for trial in trials)])
    per_s = {name: arm_per_s(trials, unit) for name, trials in found.items() if trials}
    if not per_s:
        sentence = message("ceiling.none")
        return Ceiling(unit, arm_per_s(achieved, unit, by), None, None, None, None, False, sentence)
    binds = min(per_s, key=lambda name: per_s[name])
    if binds == "feed":
        by = "blocks"
    else:
        per_s[binds] = arm_per_s(found[binds], unit, by)
    now = arm_per_s(achieved, unit, by)
    comparison = compare_arms(found[binds], achieved, spread, by)
    assert comparison is not None
    reached = comparison.at()
    compute_per_s, feed_per_s = per_s.get("compute"), per_s.get("feed")
    if reached.mid > _NO_CEILING:
        sentence = message("ceiling.not_found", alone=_ALONE[binds], per_s=per_s[binds], unit=_UNITS[unit])
        return Ceiling(unit, now, compute_per_s, feed_per_s, None, None, False, sentence)
    enough = 1.0 - reached.mid < ENOUGH
    sentence = _sentence(reached.mid, per_s[binds], unit, binds, is_only=len(per_s) == 1)
    return Ceiling(unit, now, compute_per_s, feed_per_s, binds, reached, enough, sentence)


def _sentence(reached: float, per_s: float, unit: Unit, binds: Binds, is_only: bool) -> Message:
    figures = {"percent": 100 * reached, "per_s": per_s, "unit": _UNITS[unit], "alone": _ALONE[binds]}
    if binds == "compute":
        # Other kernels may be quicker: it is no limit of the device's own.
        if not is_only:
            return message("ceiling.reached_by_kernels", **figures)
        return message("ceiling.reached_by_kernels_of_one", **figures, other=_ALONE["feed"])
    if not is_only:
        return message("ceiling.reached", **figures)
    return message("ceiling.reached_of_one", **figures, other=_ALONE["compute"])


# Hours that a long training takes, before and after: 100,000 steps of the script as it is.
#
# By blocks that is the training itself, without evaluations and checkpoints; by total all the time there was. Where the
# batch was changed, as many samples count, not steps.

STEPS = 100_000


def training_hours(
    before: Sequence[Trial], trials: Sequence[Trial], spread: Spread | None = None, by: By = "total"
) -> Hours | None:
    """Of the arm `trials`; of `before` itself if given twice. None where either was not measured."""
    before, trials = keep_measured(before), keep_measured(trials)
    if not before or not trials:
        return None
    unit = common_unit([*before, *trials])
    per_step = float(np.mean([units_of(trial, unit).mean() for trial in before]))
    work = STEPS * per_step / 3600.0
    mid = work / arm_per_s(trials, unit, by)
    off = interval_of_arm(trials, unit, by, spread or calibrate([before, trials], by))
    low, high = (mid * math.exp(max(-MOST, min(bound, MOST))) for bound in (min(0.0, off[0]), max(0.0, off[1])))
    return Hours(low, mid, high, CONFIDENCE)
