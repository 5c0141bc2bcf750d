"""How long trials have to be, from a first look at the script: long enough to tell arms apart, short enough to pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flatout.records.report import RunReport
from flatout.records.trial import Trial

WARM_UP = 10
_WINDOW_S = 5.0
_FEWEST, _MOST = 30, 400
# Remedies that time the script before they begin need steps for that, and compiling needs some more.
_LATE = {
    "compile.model": 120,
    "precision.bf16": 10,
    "precision.fp16": 20,
    "transfer.async": 25,
    "transfer.prefetch": 10,
}
_PAUSING = ("cadence.", "checkpoint.")
_PAUSES_SEEN = 2.2


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a trial of the bare script: its steps, what a step takes, and what comes before the first."""

    steps: int
    step_s: float
    start_s: float
    # Steps from one evaluation or checkpoint to the next, where there are any.
    pause_every: float | None = None

    def steps_for(self, remedies: list[str], speed_up: float = 1.0) -> int:
        """Faster arms take more steps for as long a look."""
        steps = min(_MOST, max(_FEWEST, round((self.steps - WARM_UP) * max(1.0, speed_up)))) + WARM_UP
        if self.pause_every is not None and any(name.startswith(_PAUSING) for name in remedies):
            steps = max(steps, WARM_UP + round(_PAUSES_SEEN * self.pause_every))
        return steps + sum(_LATE.get(name, 0) for name in remedies)

    def seconds_for(self, steps: int, speed_up: float = 1.0) -> float:
        """What a trial of so many steps will take in all, about."""
        return self.start_s + steps * self.step_s / max(1.0, speed_up)


def sizes(look: Trial, report: RunReport, affordable_s: float) -> Sizes:
    """`affordable_s` is what one trial may take at most."""
    step_s = max(1e-5, float(np.median(look.step_s)))
    start_s = max(1.0, look.wall_s - float(np.sum(look.step_s)))
    window_s = min(_WINDOW_S, max(1.0, affordable_s - start_s))
    steps = WARM_UP + int(min(_MOST, max(_FEWEST, window_s / step_s)))
    pauses = [site.count for site in report.pauses if site.op in ("eval", "checkpoint") and site.count]
    every = report.run.steps / max(pauses) if pauses and max(pauses) > 1 else None
    if every is not None and (_PAUSES_SEEN * every + WARM_UP) * step_s > affordable_s:
        every = None
    return Sizes(steps, step_s, start_s, every)
