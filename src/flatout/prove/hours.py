"""What a long training takes: hours for 100,000 steps of the script as it is, before and after.

By blocks that is the training itself, without evaluations and checkpoints; by total all the time there was. Where the
batch was changed, as many samples count, not steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flatout.prove.calibration import calibrated
from flatout.prove.rates import arm_per_s, common_unit, measured, units_of
from flatout.prove.ratio import CONFIDENCE, MOST, interval_of_arm
from flatout.records.proof import By, Hours, Spread
from flatout.records.trial import Trial

STEPS = 100_000


def hours(
    before: Sequence[Trial], trials: Sequence[Trial], spread: Spread | None = None, by: By = "total"
) -> Hours | None:
    """Of the arm `trials`; of `before` itself if given twice. None where either was not measured."""
    before, trials = measured(before), measured(trials)
    if not before or not trials:
        return None
    unit = common_unit([*before, *trials])
    per_step = float(np.mean([units_of(trial, unit).mean() for trial in before]))
    work = STEPS * per_step / 3600.0
    mid = work / arm_per_s(trials, unit, by)
    off = interval_of_arm(trials, unit, by, spread or calibrated([before, trials], by))
    low, high = (mid * math.exp(max(-MOST, min(bound, MOST))) for bound in (min(0.0, off[0]), max(0.0, off[1])))
    return Hours(low, mid, high, CONFIDENCE)
