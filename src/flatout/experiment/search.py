"""The search of `flatout fix`: looks at the script, tries what its findings call for, and keeps what measurably helps.

Remedies are tried one on top of the other, lossless ones first. When something was kept, the script is looked at again
under it: what bound it before may be gone, and the next cause shows. The search ends when little is left to the
ceiling, when nothing is left to try, or when the time is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.errors import FlatoutError
from flatout.experiment.bench import BARE, LOSSES, Bench
from flatout.experiment.control_trials import MOST_CONTROLS, check_losses, make_control_trials
from flatout.experiment.decide import LARGE, Turns, judge_group, measure_distance, measure_until_sure, mid_of
from flatout.experiment.judge import as_tried, compare_bits, draws_other_numbers, lossless_part, only_feeds, refusal
from flatout.experiment.plan import (
    find_conflict,
    finest_first,
    helps_launching,
    is_device_speedup,
    make_plan,
    order_remedies,
    worth_its_rounding,
)
from flatout.experiment.statistics.decision import BAR
from flatout.experiment.statistics.rates import arm_per_s, keep_measured
from flatout.experiment.turns import Screened
from flatout.records.fix import Tried
from flatout.records.message import Message, message
from flatout.records.plan import LeftOut, Plan, Planned
from flatout.records.proof import Ceiling
from flatout.records.report import Finding, RunReport
from flatout.records.trial import Trial
from flatout.remedies.catalogue import known, traits_of
from flatout.remedies.traits import SelfTuning
from flatout.words import english

_MOST_ROUNDS = 5
# Why a search ended.
NOTHING_LEFT = message("search.nothing_left")
NO_TIME = message("search.no_time")
AT_CEILING = message("search.at_ceiling")


class Search:
    """From the bare script to a profile."""

    def __init__(
        self,
        bench: Bench,
        report_of: Callable[[Trial], RunReport],
        in_turns: Callable[[Trial], Mapping[str, Trial]] = lambda trial: {},
        tell: Callable[[Tried], None] = lambda one: None,
    ) -> None:
        self._bench = bench
        self._report_of = report_of
        self._turns = Turns(bench, in_turns)
        self._planned = 0
        self._looked_under: dict[str, Any] = {}
        # Of every look.
        self.findings: list[Finding] = []
        self._tried_under: dict[str, dict[str, Any]] = {}
        self.found = Found(tell)

    def plan(self, report: RunReport) -> Plan:
        self.findings += report.findings
        bench = self._bench
        bench.sizes = bench.sizes.with_pauses_of(report)
        plan = make_plan(report, self._bench.settings.wishes, self._settled(), self.found.profile)
        for one in plan.left_out:
            self.found.left_out[one.id] = one
        return plan

    def _settled(self) -> set[tuple[str, str]]:
        """What needs no second trial. What gained nothing may gain once something else no longer holds it up."""
        return {
            (one.planned.id, repr(one.planned.value))
            for one in self.found.tried
            if one.why != AT_CEILING
            and (one.state != "neutral" or self._tried_under[one.planned.id] == self.found.profile)
        }

    def run(self, report: RunReport) -> None:
        bench, found = self._bench, self.found
        self.measure_bare()
        for _ in range(_MOST_ROUNDS):
            before = dict(found.profile)
            self._try_all(self.plan(report).remedies)
            if found.profile == before or found.ended == NO_TIME:
                break
            if not bench.affords_look(found.profile):
                found.ended = NO_TIME
                break
            report = self._report_of(bench.look(found.profile))
            self._looked_under = dict(found.profile)
        if found.ceiling is None and found.ended != NO_TIME:
            self._is_at_ceiling()

    def _try_all(self, remedies: Sequence[Planned]) -> None:
        """One by one; after the lossless ones, all that can be switched in mid-training in turns.

        Where what was kept brings the batches as soon as they can be used, nothing more of that kind is tried.
        """
        self._planned += len(remedies)
        order = order_remedies(remedies, self._is_slight)
        self.found.ended = NOTHING_LEFT
        # What may help launching is not asked again and again by itself before it was seen with what it may help.
        goes_on = self._is_tried(order.first) and self._is_tried(order.second, is_brief=bool(order.able))
        if goes_on and not self._is_changed() and self._is_tried([*self._screened(order.able), *order.last]):
            self._is_tried([[one] for one in self._doubtful() if order.able])

    def _is_tried(self, groups: Sequence[Sequence[Planned]], is_brief: bool = False) -> bool:
        """Try them; whether all of them could be, and nothing changed the picture."""
        for group in groups:
            if self._is_changed():
                return False
            if self._fits(group) and self.found.profile and only_feeds(group) and self._is_at_ceiling():
                self.found.ended = AT_CEILING
                self.found.put(Tried(one, "not measured", AT_CEILING) for one in group)
            elif (tuning := traits_of(group[0].id).self_tuning) is not None:
                self._try_self_tuning(group[0], tuning)
            else:
                self._try(group, is_brief and helps_launching(group[0]))
        return True

    def _fits(self, group: Sequence[Planned]) -> bool:
        """Whether a trial of it fits into the time at all: else a ceiling would be measured for nothing."""
        return self._bench.too_long({**self.found.profile, **{one.id: one.value for one in group}}) is None

    def _is_slight(self, group: Sequence[Planned]) -> bool:
        """Whether no more is expected of it than what processes differ by here: it takes many trials to be seen.

        What the bare script differs by says little of what it does under what was kept.
        """
        bench, now = self._bench, self.found.profile
        expected = [one.predicted.high for one in group if one.predicted is not None]
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
        """First with the number that it finds while it runs. Where that gains nothing, what the findings call for.

        Where it does, the next look says whether more is called for. Which number is best is for the clock to say then:
        twice as many are tried as long as that helps.
        """
        kept = self.found.profile
        if remedy.id not in kept and self._try_value(remedy, tuning.value):
            return
        if remedy.value != tuning.value:
            self._try([remedy])
        while isinstance(count := self.found.profile.get(remedy.id), int) and 2 * count <= tuning.most:
            if self._is_at_ceiling() or not self._try_value(remedy, 2 * count):
                return

    def _try_value(self, one: Planned, value: Any) -> bool:
        """Another value of a remedy; whether it is kept."""
        if (one.id, repr(value)) in self._settled():
            return False
        self._planned += 1
        self._try([replace(one, value=value)])
        return bool(self.found.profile.get(one.id) == value)

    def _screened(self, able: Sequence[Planned]) -> Sequence[Sequence[Planned]]:
        """Those that are left to try: what can take turns is weighed in one process where that pays.

        Where there is no time for that, nor for each by itself, they are tried together.
        """
        if not able:
            return []
        # What is recorded goes on as it was, whatever is switched: those that may go with it take no turns.
        weights = self._turns.switched(able, self.found.profile) if not self._doubtful() else None
        if weights is None:
            is_short = not self._bench.affords(self.found.profile, len(able))
            return [list(able)] if is_short else [[one] for one in finest_first(able)]
        found, helpful = self.found, []
        for one in able:
            if one.id in weights.refused:
                state, why = weights.refused[one.id]
                found.put([Tried(one, "refused" if state in ("refused", "reverted") else "failed", why)])
                continue
            decision = weights.decisions[one.id]
            if decision.judgement == "kept":
                helpful.append(one)
            else:
                self._tried_under[one.id] = dict(found.profile)
                found.put([Tried(one, decision.judgement, message("tried.in_turns", why=decision.why), decision)])
        fine = worth_its_rounding(helpful, lambda one: mid_of(weights.decisions[one.id]))
        coarse = [one for one in helpful if one not in fine]
        self._tried_under |= {one.id: dict(found.profile) for one in coarse}
        found.put(Tried(one, "neutral", message("tried.finer_rounding"), weights.decisions[one.id]) for one in coarse)
        return [[one] for one in fine] if fine and not self._adopt(fine, weights) else []

    def _adopt(self, helpful: Sequence[Planned], weights: Screened) -> bool:
        """Together in a fresh process: they stay unless that shows them broken or slower."""
        bench, found = self._bench, self.found
        before = dict(found.profile)
        after = {**before, **{one.id: one.value for one in helpful}}
        if not bench.affords(after):
            return False
        trial = bench.trial(after, " + ".join(one.id for one in helpful))
        if any(refusal(one, trial) is not None for one in helpful):
            return False
        if judge_group(bench, helpful, before, after, self._planned).judgement == "harmful":
            return False
        if self._drifts(bench.made.of(after)) is not None:
            return False
        self._tried_under |= {one.id: before for one in helpful}
        found.profile = after
        weighed = ((one, weights.decisions[one.id]) for one in helpful)
        found.put(
            Tried(one, "kept", message("tried.in_turns", why=decision.why), decision) for one, decision in weighed
        )
        return True

    def _try(self, group: Sequence[Planned], is_brief: bool = False, is_alone: bool = False) -> None:
        """Measure them on top of what is kept, and keep them if they help.

        `is_brief`: a doubt may stay for now. `is_alone`: not on top of what is doubtful itself.
        """
        bench, found = self._bench, self.found
        # What was kept since they were planned may not go with them.
        rivals = [(one, why) for one in group if (why := find_conflict(known()[one.id], found.profile)) is not None]
        found.put(Tried(one, "not measured", why) for one, why in rivals)
        group = [one for one in group if one not in [one for one, _ in rivals]]
        if not group:
            return
        own, beneath = group, self._doubtful() if is_device_speedup(group) and not is_alone else []
        group = [*beneath, *own]
        after = {**found.profile, **{one.id: one.value for one in group}}
        if (why := bench.too_long(after)) is not None:
            found.put(Tried(one, "not measured", why) for one in own)
            return
        # A proof of nothing needs no time to be kept for it.
        if not bench.affords(after, reserve_s=None if found.profile else 0.0):
            found.ended = NO_TIME
            # One that is doubtful keeps the figure that it has.
            open_ones = [one for one in own if one not in self._doubtful()]
            found.put(Tried(one, "not measured", message("tried.no_time")) for one in open_ones)
            return
        trial = bench.trial(after, " + ".join(one.id for one in group))
        if beneath and not trial.ended_well:
            # They do not go together, which says nothing of either.
            self._try(own, is_brief, is_alone=True)
            return
        refused = [(one, why_not) for one in group if (why_not := refusal(one, trial)) is not None]
        found.put(Tried(one, *why_not) for one, why_not in refused if one not in beneath)
        # What was refused had no part in the trial, so it speaks for the others all the same.
        rest = [one for one in group if one not in [one for one, _ in refused]]
        if rest:
            self._tried_under |= {one.id: dict(found.profile) for one in rest}
            judged = self._judged(rest, trial, after, is_brief)
            # Where nothing comes of it, what was measured of these alone still holds.
            found.put(one for one in judged if one.state == "kept" or one.planned not in beneath)

    def _doubtful(self) -> list[Planned]:
        """What may help launching, and was not sure to gain by itself: others may show its worth, and it theirs."""
        return [
            one.planned
            for one in self.found.tried
            if helps_launching(one.planned)
            and one.state == "neutral"
            and one.decision is not None
            and mid_of(one.decision) > BAR
            and self._tried_under[one.planned.id] == self.found.profile
        ]

    def _judged(
        self, group: Sequence[Planned], trial: Trial, after: dict[str, Any], is_brief: bool = False
    ) -> list[Tried]:
        bench, found = self._bench, self.found
        before = dict(found.profile)
        same = None
        if all(one.safety == "lossless" for one in group):
            same = compare_bits(bench.made.of(before), trial, bench.made.of({}))
            if same.verdict == "differs":
                why = message("tried.changes_numbers", sentence=same.sentence)
                return [Tried(one, "failed", why, identity=same) for one in group]
        decision = measure_until_sure(bench, self._turns, group, trial.arm, before, after, self._planned, is_brief)
        if decision.judgement == "kept":
            is_numeric = any(one.safety == "numeric" for one in group)
            if is_numeric and (drift := self._drifts(bench.made.of(after))) is not None:
                return [Tried(one, "failed", drift, decision) for one in group]
            found.profile = after
        return [as_tried(one, decision, before, group, same) for one in group]

    def _drifts(self, trials: Sequence[Trial]) -> Message | str | None:
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

    def withdraw(self, why: Message | str, kept: Mapping[str, Any] | None = None) -> None:
        """The profile as a whole did not hold: nothing is left of it but `kept`."""
        found = self.found
        found.profile = dict(kept or {})
        found.tried = [
            replace(one, state="neutral", why=why)
            if one.state == "kept" and one.planned.id not in found.profile
            else one
            for one in found.tried
        ]

    def measure_bare(self) -> None:
        """Twice: whether the script repeats itself, in its figures and its speed, is what all else is judged by."""
        for again in (False, True):
            bare = self._bench.trial({}, BARE, again=again)
            if not bare.ended_well:
                where = f"see {bare.run}/output.txt"
                raise FlatoutError(f"a trial of the bare script failed ({bare.ending}: {english(bare.why)}); {where}")

    def _is_at_ceiling(self) -> bool:
        bench, found = self._bench, self.found
        if bench.left_s <= 0:
            return False
        found.ceiling = measure_distance(bench, found.profile)
        return found.ceiling is not None and found.ceiling.enough


# What a search has found so far.


class Found:
    """Of a remedy that was tried twice the last word counts."""

    def __init__(self, tell: Callable[[Tried], None] = lambda one: None) -> None:
        self._tell = tell
        self.profile: dict[str, Any] = {}
        self.tried: list[Tried] = []
        self.left_out: dict[str, LeftOut] = {}
        self.ceiling: Ceiling | None = None
        self.ended: Message = NOTHING_LEFT

    def put(self, more: Iterable[Tried]) -> None:
        for one in more:
            mine = (one.planned.id, one.planned.value)
            self.tried = [other for other in self.tried if (other.planned.id, other.planned.value) != mine]
            if one.state == "kept":
                # Another value of the same remedy has had its day.
                self.tried = [_mark_outdone(other, one) for other in self.tried]
            self.tried.append(one)
            self._tell(one)


def _mark_outdone(before: Tried, by: Tried) -> Tried:
    if before.planned.id != by.planned.id or before.state != "kept":
        return before
    return replace(before, state="outdone", why=message("tried.outdone", value=by.planned.value))
