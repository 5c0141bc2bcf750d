"""The search of `flatout fix`: looks at the script, tries what its findings call for, and keeps what measurably helps.

Remedies are tried one on top of the other, lossless ones first. When something was kept, the script is looked at again
under it: what bound it before may be gone, and the next cause shows. The search ends when little is left to the
ceiling, when nothing is left to try, or when the time is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.app.fixing.bench import BARE, TRIAL_SHARE, Bench
from flatout.app.fixing.sizes import sizes
from flatout.app.plan import planned, together
from flatout.errors import FlatoutError
from flatout.prove.calibration import calibrated
from flatout.prove.ceiling import ceiling
from flatout.prove.decision import Candidate, judged, worth_more
from flatout.prove.envelope import envelope
from flatout.prove.identity import identity
from flatout.records.fix import State, Tried
from flatout.records.plan import LeftOut, Plan, Planned
from flatout.records.proof import By, Ceiling, Decision
from flatout.records.report import Finding, RunReport
from flatout.records.trial import Trial

_MOST_REPEATS = 3
_MOST_ROUNDS = 5
# So much more than it had to be is not luck, even in a single trial.
_PLENTY = 1.1
_YARDSTICKS = 3
_NO_TIME = "the time was spent"
_AT_CEILING = "less than 5% is left to the ceiling"
KEPT = "kept so far"
_WORKERS, _MOST_WORKERS, _TUNED = "loader.workers", 64, "auto"


class Found:
    """What the search has come to so far. Of a remedy that was tried twice the last word counts."""

    def __init__(self) -> None:
        self.profile: dict[str, Any] = {}
        self.tried: list[Tried] = []
        self.left_out: dict[str, LeftOut] = {}
        self.ceiling: Ceiling | None = None
        self.ended = "nothing was left to try"

    def put(self, more: Iterable[Tried]) -> None:
        for one in more:
            mine = (one.planned.id, one.planned.value)
            self.tried = [other for other in self.tried if (other.planned.id, other.planned.value) != mine]
            if one.state == "kept":
                # Another value of the same remedy has had its day.
                self.tried = [_outdone(other, one) for other in self.tried]
            self.tried.append(one)


class Search:
    """From the bare script to a profile."""

    def __init__(self, bench: Bench, report_of: Callable[[Trial], RunReport]) -> None:
        self._bench = bench
        self._report_of = report_of
        self._planned = 0
        # Of every look.
        self.findings: list[Finding] = []
        self._tried_under: dict[str, dict[str, Any]] = {}
        self.found = Found()

    def look(self) -> RunReport:
        """The script as it is. Raises FlatoutError if it does not train."""
        bench = self._bench
        look = bench.look({})
        if not look.step_s:
            raise FlatoutError(
                f"the script does not train as it is ({look.ending}: {look.why}); see {look.run}/output.txt"
            )
        report = self._report_of(look)
        bench.sizes = sizes(look, report, TRIAL_SHARE * bench.settings.budget_s)
        return report

    def plan(self, report: RunReport) -> Plan:
        self.findings += report.findings
        plan = planned(report, self._bench.settings.wishes, self._settled(), self.found.profile)
        for one in plan.left_out:
            self.found.left_out[one.id] = one
        return plan

    def _settled(self) -> set[tuple[str, str]]:
        """What needs no second trial. What gained nothing may gain once something else no longer holds it up."""
        return {
            (one.planned.id, repr(one.planned.value))
            for one in self.found.tried
            if one.state != "neutral" or self._tried_under[one.planned.id] == self.found.profile
        }

    def run(self, report: RunReport) -> None:
        bench, found = self._bench, self.found
        self.measure_bare()
        for _ in range(_MOST_ROUNDS):
            before = dict(found.profile)
            plan = self.plan(report)
            self._planned += len(plan.remedies)
            for group in together(plan.remedies):
                self._try(group)
            self._climb()
            if found.profile == before or found.ended == _NO_TIME:
                break
            if self._is_at_ceiling():
                found.ended = _AT_CEILING
                break
            report = self._report_of(bench.look(found.profile))
        if found.ceiling is None and found.ended != _NO_TIME:
            self._is_at_ceiling()

    def _climb(self) -> None:
        """How many workers are best is for the clock to say.

        The loader that finds its number while it runs is tried as well; then twice as many, as long as that helps.
        """
        tried = [one.planned for one in self.found.tried if one.planned.id == _WORKERS]
        if not tried:
            return
        self._try_value(tried[-1], _TUNED)
        while isinstance(count := self.found.profile.get(_WORKERS), int) and 2 * count <= _MOST_WORKERS:
            if self._is_at_ceiling() or not self._try_value(tried[-1], 2 * count):
                return

    def _try_value(self, one: Planned, value: Any) -> bool:
        """Another value of a remedy; whether it is better."""
        if (one.id, repr(value)) in self._settled() or one.value == value:
            return False
        self._planned += 1
        self._try([replace(one, value=value, predicted=None)])
        return bool(self.found.profile.get(one.id) == value)

    def _try(self, group: Sequence[Planned]) -> None:
        """Measure them on top of what is kept, and keep them if they help."""
        bench, found = self._bench, self.found
        after = {**found.profile, **{one.id: one.value for one in group}}
        if not bench.affords(after):
            found.ended = _NO_TIME
            found.put(Tried(one, "not measured", "there was no time left for it") for one in group)
            return
        trial = bench.trial(after, " + ".join(one.id for one in group))
        refused = [(one, refusal) for one in group if (refusal := _refusal(one, trial)) is not None]
        found.put(Tried(one, *refusal) for one, refusal in refused)
        # What was refused had no part in the trial, so it speaks for the others all the same.
        rest = [one for one in group if one not in [one for one, _ in refused]]
        if rest:
            self._tried_under |= {one.id: dict(found.profile) for one in rest}
            found.put(self._judged(rest, trial, after))

    def _judged(self, group: Sequence[Planned], trial: Trial, after: dict[str, Any]) -> list[Tried]:
        bench, found = self._bench, self.found
        before = dict(found.profile)
        same = None
        if all(one.safety == "lossless" for one in group):
            same = identity(bench.of(before), trial)
            if same.verdict == "differs":
                why = f"it is to change nothing, but {same.sentence}"
                return [Tried(one, "failed", why, identity=same) for one in group]
        elif all(one.safety != "training" for one in group):
            within = envelope(self.yardsticks(), [trial])
            if within.verdict == "outside":
                return [Tried(one, "failed", within.sentence) for one in group]
        decision = self._decision(group, before, after)
        for _ in range(_MOST_REPEATS - 1):
            # Where nothing is kept yet these trials are the proof's own, and may have its time.
            if not self._is_open(decision) or not bench.affords(after, 2, reserve=None if before else 0.0):
                break
            bench.trial(before, KEPT if before else BARE, again=True)
            bench.trial(after, trial.arm, again=True)
            decision = self._decision(group, before, after)
        if decision.judgement == "kept":
            found.profile = {**before, **{one.id: one.value for one in group}}
        return [Tried(one, decision.judgement, decision.why, decision, same) for one in group]

    def withdraw(self, why: str) -> None:
        """The profile as a whole did not hold: nothing of it is kept."""
        found = self.found
        found.profile = {}
        found.tried = [replace(one, state="neutral", why=why) if one.state == "kept" else one for one in found.tried]

    def measure_bare(self) -> None:
        """Twice: whether the script repeats itself, in its figures and its speed, is what all else is judged by."""
        for again in (False, True):
            bare = self._bench.trial({}, BARE, again=again)
            if not bare.ended_well:
                where = f"see {bare.run}/output.txt"
                raise FlatoutError(f"a trial of the bare script failed ({bare.ending}: {bare.why}); {where}")

    def _is_open(self, decision: Decision) -> bool:
        """Whether more trials could turn it: one that is not sure yet, or sure of little after a single trial."""
        if worth_more([decision]):
            return True
        gain = decision.gain
        return decision.judgement == "kept" and gain is not None and gain.trials[1] < 2 and gain.low < _PLENTY

    def yardsticks(self) -> list[Trial]:
        """What the script's losses differ by when nothing is changed, or next to nothing; three at least."""
        if len(self._bench.of({})) < _YARDSTICKS:
            self._bench.trial({}, BARE, again=True)
        bare = self._bench.of({})
        repeats = identity(bare[:1], bare[1]).verdict == "identical"
        return [*bare, self._bench.nudged()] if repeats else list(bare)

    def _decision(self, group: Sequence[Planned], before: Mapping[str, Any], after: Mapping[str, Any]) -> Decision:
        is_of_pauses = any(one.id.startswith(("cadence.", "checkpoint.")) for one in group)
        by: By = "total" if is_of_pauses else "blocks"
        candidate = Candidate(" + ".join(one.id for one in group), self._bench.of(after), by)
        # Each remedy has a chance to look good by luck, every time it is judged.
        looks = _MOST_REPEATS * max(1, self._planned)
        return judged(self._bench.of(before), [candidate], calibrated(self._bench.arms(), by), looks)[0]

    def _is_at_ceiling(self) -> bool:
        bench, found = self._bench, self.found
        if bench.left_s <= 0:
            return False
        at = bench.ceiling(found.profile)
        reached = ceiling(bench.of(found.profile), [at], [])
        found.ceiling = reached
        return reached is not None and reached.enough


def _outdone(before: Tried, by: Tried) -> Tried:
    if before.planned.id != by.planned.id or before.state != "kept":
        return before
    return replace(before, state="outdone", why=f"{by.planned.value} is better still")


def _refusal(one: Planned, trial: Trial) -> tuple[State, str] | None:
    """Why this trial says nothing of the remedy's speed."""
    if not trial.ended_well:
        return "failed", f"the trial ended: {trial.ending}" + (f" ({trial.why})" if trial.why else "")
    state = next((state for state in trial.states if state.id == one.id), None)
    if state is None:
        return "failed", "it did not come into force"
    if state.state != "applied":
        return ("refused" if state.state in ("refused", "reverted") else "failed"), state.why
    return None
