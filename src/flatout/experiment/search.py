"""The search of `flatout fix`: looks at the script, tries what its findings call for, and keeps what measurably helps.

Remedies are tried one on top of the other, lossless ones first. When something was kept, the script is looked at again
under it: what bound it before may be gone, and the next cause shows. The search ends when little is left to the
ceiling, when nothing is left to try, or when the time is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from flatout.errors import FlatoutError
from flatout.experiment.bench import BARE, LOSSES, Bench
from flatout.experiment.decide import (
    LARGE,
    MOST_CONTROLS,
    Attempt,
    Turns,
    check_losses,
    judge_attempt,
    make_control_trials,
    measure_distance,
    measure_until_sure,
    mid_of,
)
from flatout.experiment.judge import as_tried, compare_bits, draws_other_numbers, lossless_part, only_feeds, refusal
from flatout.experiment.plan import (
    find_conflict,
    finest_first,
    group_remedies,
    helps_launching,
    is_device_speedup,
    make_plan,
    order_remedies,
    worth_its_rounding,
)
from flatout.experiment.statistics.rates import arm_per_s, keep_measured
from flatout.experiment.turns import Screened
from flatout.records.fix import LeftOut, Plan, Planned, Tried
from flatout.records.message import Message, message
from flatout.records.proof import BAR, Ceiling
from flatout.records.report import Finding, Ladder, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known, traits_of
from flatout.remedies.traits import SelfTuning
from flatout.words import english

_MOST_ROUNDS = 5


class End(Enum):
    """Why a search ended; its value is the message that says so."""

    NOTHING_LEFT = "search.nothing_left"
    NO_TIME = "search.no_time"
    AT_CEILING = "search.at_ceiling"
    INTERRUPTED = "search.interrupted"
    # There was none: a profile was verified.
    VERIFIED = "search.verified"


class Search:
    """From the bare script to a profile."""

    def __init__(
        self,
        bench: Bench,
        report_of: Callable[[Trial], RunReport],
        in_turns: Callable[[Trial], Mapping[str, Trial]] = lambda trial: {},
        tell: Callable[[Tried], None] = lambda tried: None,
    ) -> None:
        self._bench = bench
        self._report_of = report_of
        self._turns = Turns(bench, in_turns)
        self._planned = 0
        self._looked_under: dict[str, Any] = {}
        # Of every look.
        self.findings: list[Finding] = []
        self._ladder: Ladder | None = None
        self._tried_under: dict[str, dict[str, Any]] = {}
        # Remedies with their values that were not tried because the ceiling was reached: the next look may lift it.
        self._spared: set[tuple[str, str]] = set()
        self.found = Found(tell)

    def plan(self, report: RunReport) -> Plan:
        self.findings += report.findings
        self._ladder = None if report.gpu is None else report.gpu.ladder
        bench = self._bench
        bench.sizes = bench.sizes.with_pauses_of(report)
        plan = make_plan(report, self._bench.settings.wishes, self._settled(), self.found.profile)
        self.found.left_out |= {left_out.id: left_out for left_out in plan.left_out}
        return plan

    def ladder(self) -> Ladder | None:
        """Of a step under what is kept; None where it was not looked at since."""
        return self._ladder if self._looked_under == self.found.profile else None

    def _settled(self) -> set[tuple[str, str]]:
        """What needs no second trial. What gained nothing may gain once something else no longer holds it up."""
        return {
            _key(tried.planned)
            for tried in self.found.tried
            if tried.state != "neutral" or self._tried_under[tried.planned.id] == self.found.profile
        } - self._spared

    def run(self, report: RunReport) -> None:
        bench, found = self._bench, self.found
        self.measure_bare()
        for _ in range(_MOST_ROUNDS):
            before = dict(found.profile)
            self._try_all(self.plan(report).remedies)
            if found.profile == before or found.ended is End.NO_TIME:
                break
            if not bench.affords_look(found.profile):
                found.ended = End.NO_TIME
                break
            report = self._report_of(bench.look(found.profile))
            self._looked_under = dict(found.profile)
        if found.ceiling is None and found.ended is not End.NO_TIME:
            self._measure_ceiling()

    def _try_all(self, remedies: Sequence[Planned]) -> None:
        """Lossless remedies one by one, then those that can be switched in mid-training in turns, then the others."""
        self._planned += len(remedies)
        order = order_remedies(remedies, self._is_slight)
        self.found.ended = End.NOTHING_LEFT
        # What may help launching is not asked again and again by itself before it was seen with what it may help.
        goes_on = self._try_groups(order.first) and self._try_groups(order.second, is_brief=bool(order.able))
        if goes_on and not self._is_changed() and self._try_groups([*self._screen(order.able), *order.last]):
            self._try_groups([[remedy] for remedy in self._doubtful() if order.able])

    def _try_groups(self, groups: Sequence[Sequence[Planned]], is_brief: bool = False) -> bool:
        """Whether all of them could be tried, and nothing changed the picture."""
        for group in groups:
            if self._is_changed():
                return False
            if self._fits(group) and self.found.profile and only_feeds(group) and self._measure_ceiling():
                self.found.ended = End.AT_CEILING
                self._spared |= {_key(remedy) for remedy in group}
                why = message(End.AT_CEILING.value)
                self.found.put(Tried(remedy, "not measured", why) for remedy in group)
            elif (tuning := traits_of(group[0].id).self_tuning) is not None:
                self._try_self_tuning(group[0], tuning)
            else:
                self._try(group, is_brief and helps_launching(group[0]))
        return True

    def _fits(self, group: Sequence[Planned]) -> bool:
        """Whether a trial of it fits into the time at all: else a ceiling would be measured for nothing."""
        return self._bench.too_long(self._with(group)) is None

    def _with(self, group: Sequence[Planned]) -> dict[str, Any]:
        """What is kept, and these."""
        return {**self.found.profile, **{remedy.id: remedy.value for remedy in group}}

    def _is_slight(self, group: Sequence[Planned]) -> bool:
        """Whether no more is expected of it than what processes differ by now: that takes many trials."""
        bench, now = self._bench, self.found.profile
        expected = [remedy.predicted.high for remedy in group if remedy.predicted is not None]
        if not expected or (now and not bench.made.knows_spread(now)):
            return False
        return math.log(max(expected)) < bench.made.spread(now).typical

    def _is_changed(self) -> bool:
        """Whether so much was gained since the last look that what this one said of the rest is out of date."""
        bench, now = self._bench, self.found.profile
        if now == self._looked_under or not bench.affords_look(now):
            return False
        step_s = [
            arm_per_s(trials, "step") for trials in map(keep_measured, map(bench.made.timed, (self._looked_under, now)))
        ]
        return step_s[1] > LARGE * step_s[0]

    def _try_self_tuning(self, remedy: Planned, tuning: SelfTuning) -> None:
        """First the number it finds while it runs, then what findings call for, then twice as many while that helps."""
        kept = self.found.profile
        if remedy.id not in kept and self._try_value(remedy, tuning.value):
            return
        if remedy.value != tuning.value:
            self._try([remedy])
        while isinstance(count := self.found.profile.get(remedy.id), int) and 2 * count <= tuning.most:
            if self._measure_ceiling() or not self._try_value(remedy, 2 * count):
                return

    def _try_value(self, remedy: Planned, value: Any) -> bool:
        """Another value of a remedy; whether it is kept."""
        remedy = replace(remedy, value=value)
        if _key(remedy) in self._settled():
            return False
        self._planned += 1
        self._try([remedy])
        return bool(self.found.profile.get(remedy.id) == value)

    def _screen(self, able: Sequence[Planned]) -> Sequence[Sequence[Planned]]:
        """The groups that are left to try. In turns where that pays; all together where there is no time for each."""
        if not able:
            return []
        # What is recorded goes on as it was, whatever is switched: those that may go with it take no turns.
        weights = self._turns.switched(able, self.found.profile) if not self._doubtful() else None
        if weights is None:
            is_short = not self._bench.affords(self.found.profile, len(able))
            return [list(able)] if is_short else group_remedies(finest_first(able))
        found, helpful = self.found, []
        for remedy in able:
            if remedy.id in weights.refused:
                found.put([Tried(remedy, *weights.refused[remedy.id])])
                continue
            decision = weights.decisions[remedy.id]
            if decision.judgement == "kept":
                helpful.append(remedy)
            else:
                self._tried_under[remedy.id] = dict(found.profile)
                why = message("tried.in_turns", why=decision.why)
                found.put([Tried(remedy, decision.judgement, why, decision)])
        fine = worth_its_rounding(helpful, lambda remedy: mid_of(weights.decisions[remedy.id]))
        coarse = [remedy for remedy in helpful if remedy not in fine]
        self._tried_under |= {remedy.id: dict(found.profile) for remedy in coarse}
        why = message("tried.finer_rounding")
        found.put(Tried(remedy, "neutral", why, weights.decisions[remedy.id]) for remedy in coarse)
        return [[remedy] for remedy in fine] if fine and not self._adopt(fine, weights) else []

    def _adopt(self, helpful: Sequence[Planned], weights: Screened) -> bool:
        """Together in a fresh process: they stay unless that shows them broken or slower."""
        bench, found = self._bench, self.found
        before, after = dict(found.profile), self._with(helpful)
        if not bench.affords(after):
            return False
        trial = bench.trial(after, _arm(helpful))
        if any(refusal(remedy, trial) is not None for remedy in helpful):
            return False
        if judge_attempt(bench, Attempt(helpful, trial.arm, before, after, self._planned)).judgement == "harmful":
            return False
        if self._drifts(bench.made.of(after)) is not None:
            return False
        self._tried_under |= {remedy.id: before for remedy in helpful}
        found.profile = after
        for remedy in helpful:
            decision = weights.decisions[remedy.id]
            found.put([Tried(remedy, "kept", message("tried.in_turns", why=decision.why), decision)])
        return True

    def _try(self, group: Sequence[Planned], is_brief: bool = False, is_alone: bool = False) -> None:
        """Measure them on top of what is kept. `is_brief`: a doubt may stay. `is_alone`: without doubtful ones."""
        bench, found = self._bench, self.found
        self._spared -= {_key(remedy) for remedy in group}
        own = []
        for remedy in group:
            # What was kept since they were planned may not go with them.
            if (rival := find_conflict(known()[remedy.id], found.profile)) is not None:
                found.put([Tried(remedy, "not measured", rival)])
            else:
                own.append(remedy)
        if not own:
            return
        beneath = self._doubtful() if is_device_speedup(own) and not is_alone else []
        group = [*beneath, *own]
        after = self._with(group)
        if (why := bench.too_long(after)) is not None:
            found.put(Tried(remedy, "not measured", why) for remedy in own)
            return
        # A proof of nothing needs no time to be kept for it.
        if not bench.affords(after, reserve_s=None if found.profile else 0.0):
            found.ended = End.NO_TIME
            # One that is doubtful keeps the figure that it has.
            unmeasured = [remedy for remedy in own if remedy not in self._doubtful()]
            found.put(Tried(remedy, "not measured", message("tried.no_time")) for remedy in unmeasured)
            return
        trial = bench.trial(after, _arm(group))
        if beneath and not trial.ended_well:
            # They do not go together, which says nothing of either.
            self._try(own, is_brief, is_alone=True)
            return
        refused = {remedy.id: refusal(remedy, trial) for remedy in group}
        found.put(Tried(remedy, *why_not) for remedy in own if (why_not := refused[remedy.id]) is not None)
        # What was refused had no part in the trial, so it speaks for the others all the same.
        rest = [remedy for remedy in group if refused[remedy.id] is None]
        if rest:
            self._tried_under |= {remedy.id: dict(found.profile) for remedy in rest}
            judged = self._judge(Attempt(rest, trial.arm, dict(found.profile), after, self._planned), trial, is_brief)
            # Where nothing comes of it, what was measured of these alone still holds.
            found.put(tried for tried in judged if tried.state == "kept" or tried.planned not in beneath)

    def _doubtful(self) -> list[Planned]:
        """What may help launching, and was not sure to gain by itself: others may show its worth, and it theirs."""
        return [
            tried.planned
            for tried in self.found.tried
            if helps_launching(tried.planned)
            and tried.state == "neutral"
            and tried.decision is not None
            and mid_of(tried.decision) > BAR
            and self._tried_under[tried.planned.id] == self.found.profile
        ]

    def _judge(self, attempt: Attempt, trial: Trial, is_brief: bool) -> list[Tried]:
        bench, group, before = self._bench, attempt.group, attempt.before
        same = None
        if all(remedy.safety == "lossless" for remedy in group):
            same = compare_bits(bench.made.of(before), trial, bench.made.of({}))
            if same.verdict == "differs":
                why = message("tried.changes_numbers", sentence=same.sentence)
                return [Tried(remedy, "failed", why, identity=same) for remedy in group]
        decision = measure_until_sure(bench, self._turns, attempt, is_brief)
        if decision.judgement == "kept":
            is_numeric = any(remedy.safety == "numeric" for remedy in group)
            if is_numeric and (drift := self._drifts(bench.made.of(attempt.after))) is not None:
                return [Tried(remedy, "failed", drift, decision) for remedy in group]
            self.found.profile = dict(attempt.after)
        return [as_tried(remedy, decision, before, group, same) for remedy in group]

    def _drifts(self, trials: Sequence[Trial]) -> Message | None:
        """Why their losses are not what rounding makes of them, if so. What cannot be told yet is left to the proof."""
        bench, profile = self._bench, trials[0].remedies
        reserve_s = bench.reserve_s(profile)
        if any(map(draws_other_numbers, trials)):
            # Then the proof needs other control trials, and they tell more.
            reserve_s += MOST_CONTROLS * bench.lasts_s({}, LOSSES)
        lossless = self.lossless()
        found = check_losses(
            bench, trials, lossless, lambda: make_control_trials(bench, lossless, reserve_s), reserve_s
        )
        return found.sentence if found.verdict == "outside" else None

    def lossless(self) -> dict[str, Any]:
        return lossless_part(self.found.profile)

    def withdraw(self, why: Message, kept: Mapping[str, Any] | None = None) -> None:
        """The profile as a whole did not hold: nothing is left of it but `kept`."""
        found = self.found
        found.profile = dict(kept or {})
        found.tried = [
            replace(tried, state="neutral", why=why)
            if tried.state == "kept" and tried.planned.id not in found.profile
            else tried
            for tried in found.tried
        ]

    def measure_bare(self) -> None:
        """Twice: whether the script repeats itself, in its figures and its speed, is what all else is judged by."""
        for again in (False, True):
            bare = self._bench.trial({}, BARE, again=again)
            if not bare.ended_well:
                where = f"see {bare.run}/output.txt"
                raise FlatoutError(f"a trial of the bare script failed ({bare.ending}: {english(bare.why)}); {where}")

    def _measure_ceiling(self) -> bool:
        """Whether what is kept is so near the ceiling that nothing is left to gain."""
        bench, found = self._bench, self.found
        if bench.left_s <= 0:
            return False
        found.ceiling = measure_distance(bench, found.profile)
        return found.ceiling is not None and found.ceiling.enough


# What a search has found so far.


class Found:
    """Of a remedy that was tried twice the last word counts."""

    def __init__(self, tell: Callable[[Tried], None]) -> None:
        self._tell = tell
        self.profile: dict[str, Any] = {}
        self.tried: list[Tried] = []
        self.left_out: dict[str, LeftOut] = {}
        self.ceiling: Ceiling | None = None
        self.ended = End.NOTHING_LEFT

    def put(self, more: Iterable[Tried]) -> None:
        for tried in more:
            mine = (tried.planned.id, tried.planned.value)
            self.tried = [other for other in self.tried if (other.planned.id, other.planned.value) != mine]
            if tried.state == "kept":
                self.tried = [_mark_outdone(other, tried) for other in self.tried]
            self.tried.append(tried)
            self._tell(tried)


def _mark_outdone(before: Tried, by: Tried) -> Tried:
    """Another value of the same remedy gains more."""
    if before.planned.id != by.planned.id or before.state != "kept":
        return before
    return replace(before, state="outdone", why=message("tried.outdone", value=by.planned.value))


def _key(remedy: Planned) -> tuple[str, str]:
    return remedy.id, repr(remedy.value)


def _arm(group: Sequence[Planned]) -> str:
    return " + ".join(remedy.id for remedy in group)
