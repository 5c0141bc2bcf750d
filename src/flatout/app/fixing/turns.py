"""Arms that take turns within one process: what processes differ by has no part in what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.app.fixing.bench import Bench
from flatout.app.fixing.judging import refusal
from flatout.app.fixing.screening import (
    Screened,
    arms_of,
    can_rest,
    resting_arms,
    resting_steps,
    weighed,
    with_and_without,
)
from flatout.records.plan import Planned
from flatout.records.proof import Decision
from flatout.records.trial import Trial

# What was recorded or compiled once goes on as it was, whatever is switched.
_RECORDED = frozenset({"graphs.model", "compile.model"})
IN_TURNS = ", in turns within one process"


class Turns:
    """`read(trial)` gives the arms that took turns in it."""

    def __init__(self, bench: Bench, read: Callable[[Trial], Mapping[str, Trial]]) -> None:
        self._bench = bench
        self._read = read

    def switched(self, able: Sequence[Planned], profile: Mapping[str, Any]) -> Screened | None:
        """Each of them by itself on top of a profile; None where that does not pay or cannot tell."""
        if not _RECORDED.isdisjoint(profile):
            return None
        arms = arms_of(able)
        trial = self._bench.screening(profile, arms, instead_of=len(arms))
        return weighed(self._read(trial), able) if trial is not None and trial.ended_well else None

    def together(self, group: Sequence[Planned], profile: Mapping[str, Any], instead_of: int) -> Decision | None:
        """A profile with and without some of it; None where they cannot rest, or so many processes are sooner done."""
        if not can_rest(group):
            return None
        arms, settling = resting_arms(group), resting_steps(group, self._bench.workers)
        trial = self._bench.screening(profile, arms, instead_of, settling)
        if trial is None or not trial.ended_well or any(refusal(one, trial) is not None for one in group):
            return None
        decision = with_and_without(self._read(trial))
        return replace(decision, why=f"{decision.why}{IN_TURNS}") if decision is not None else None
