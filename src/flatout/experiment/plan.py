"""From a run's findings to the remedies worth a trial: lossless ones first, then by predicted gain per risk.

Whether a remedy helps is for the trials to say. The plan only leaves out what the run shows to be pointless, and what
the user has not allowed.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.fix import NOT_ALLOWED, LeftOut, Plan, Planned
from flatout.records.message import Message, message, verbatim
from flatout.records.report import Finding, Gain, RunReport
from flatout.remedies.catalogue import SAFETIES, Remedy, known, remedies, traits_of
from flatout.remedies.traits import Bottleneck
from flatout.words import english

# A change of the training has to promise more than one of rounding does; what promises nothing is worth a little.
_RISK = {"lossless": 1.0, "numeric": 1.0, "training": 2.0}
_UNPROMISED = {"lossless": 1.0, "numeric": 1.05, "training": 1.05}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user lets flatout do: classes of safety beyond lossless, and patterns of remedies' ids."""

    allow: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def check(self) -> None:
        """A pattern that no remedy matches is a mistake in writing. Raises FlatoutError."""
        for pattern in (*self.only, *self.without):
            if not fnmatch.filter(known(), pattern):
                raise FlatoutError(f"no remedy is called {pattern!r}; there are {', '.join(sorted(known()))}")

    def refusal(self, remedy: Remedy) -> Message | None:
        """Why the user does not want it, or None."""
        if remedy.safety != SAFETIES[0] and remedy.safety not in self.allow:
            return message(NOT_ALLOWED, safety=remedy.safety)
        if self.only and not _matches(remedy.id, self.only):
            return message("plan.not_only")
        if _matches(remedy.id, self.without):
            return message("plan.without")
        return None


def make_plan(report: RunReport, wishes: Wishes, tried: Collection[tuple[str, str]], kept: Mapping[str, Any]) -> Plan:
    """`tried` are remedies with their values that need no second trial, `kept` those already in the profile.

    One that is kept comes again with another value where the run under it calls for that.
    """
    found: list[Planned] = []
    left_out: list[LeftOut] = []
    for remedy in remedies():
        answer = remedy.applies(report)
        if remedy.id in kept and (not answer.is_yes or answer.value == kept[remedy.id]):
            continue
        if not answer.is_yes:
            left_out.append(LeftOut(remedy.id, answer.why))
            continue
        if (remedy.id, repr(answer.value)) in tried:
            continue
        planned = _plan_remedy(remedy, answer.value, answer.why, report.findings)
        refusal = wishes.refusal(remedy) or find_conflict(remedy, kept)
        if refusal is not None:
            left_out.append(LeftOut(remedy.id, refusal, planned.predicted))
            continue
        found.append(planned)
    return Plan(tuple(sorted(found, key=_order)), tuple(left_out))


def find_conflict(remedy: Remedy, kept: Mapping[str, Any]) -> Message | None:
    """Why it cannot be in force together with what is kept, if so."""
    rival = next((name for name in kept if name in remedy.conflicts or remedy.id in known()[name].conflicts), None)
    return message("plan.rival", remedy=rival) if rival is not None else None


def group_remedies(remedies: Sequence[Planned]) -> list[list[Planned]]:
    """In the same order, with those in one group that only help each other."""
    groups: list[list[Planned]] = []
    for remedy in remedies:
        traits = traits_of(remedy.id)
        wanted = {*traits.pairs_with, *traits.builds_on}
        group = next((group for group in groups if group[0].id in wanted), None)
        if group is None:
            groups.append([remedy])
        else:
            group.append(remedy)
    return groups


def _plan_remedy(remedy: Remedy, value: Any, why: Message, findings: Sequence[Finding]) -> Planned:
    answered = [finding for finding in findings if finding.remedy == remedy.id or finding.code in remedy.answers]
    gains = [finding.predicted_gain for finding in answered if finding.predicted_gain is not None]
    best: Gain | None = max(gains, key=lambda gain: gain.mid, default=None)
    if best is not None and remedy.part is not None:
        best = _in_part(best, *remedy.part)
    codes = tuple(finding.code for finding in answered)
    return Planned(remedy.id, value, remedy.safety, remedy.title, why, codes, best)


def _in_part(gain: Gain, low: float, mid: float) -> Gain:
    """Of one that would take all of a time away, what is left where only a part of it goes."""
    share = 1.0 - 1.0 / gain.high
    method = verbatim(f"{english(gain.method)}; from outside {low:.0%} to {mid:.0%} of them go")
    return Gain(1.0 / (1.0 - low * share), 1.0 / (1.0 - mid * share), gain.high, method)


def _order(remedy: Planned) -> tuple[bool, float, int, str]:
    return remedy.safety != SAFETIES[0], -per_risk(remedy), SAFETIES.index(remedy.safety), remedy.id


def per_risk(remedy: Planned) -> float:
    """What it promises, as a logarithm, for what may go wrong with it."""
    promised = remedy.predicted.mid if remedy.predicted is not None else _UNPROMISED[remedy.safety]
    return math.log(max(1e-3, promised)) / _RISK[remedy.safety]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


# In which order remedies are tried: first what is lossless, then what stands in the way of the others.

Group = Sequence[Planned]

# A coarser rounding has to gain so much more than a finer one.
_WORTH_ITS_ROUNDING = 1.05


@dataclass(frozen=True, slots=True)
class Order:
    """Groups of remedies that are tried together; `able` can be switched in mid-training, and come before `last`."""

    first: list[Group]
    second: list[Group]
    able: list[Planned]
    last: list[Group]


def order_remedies(remedies: Sequence[Planned], is_slight: Callable[[Group], bool]) -> Order:
    """`is_slight`: whether so little is expected of them that it takes many trials to be seen."""
    able = switchable(remedies)
    groups: list[Group] = list(group_remedies([remedy for remedy in remedies if remedy not in able]))
    last = [group for group in groups if is_slight(group)]
    last += [group for group in groups if group not in last and traits_of(group[0].id).compiles_s]
    soon = [group for group in groups if group not in last]
    first = [group for group in soon if all(remedy.safety == SAFETIES[0] for remedy in group)]
    soon = [group for group in soon if group not in first]
    # What can be switched seldom promises anything: taking turns can wait for what does.
    promising = [group for group in soon if all(per_risk(group[0]) > per_risk(remedy) for remedy in able)]
    second = [group for group in soon if group in promising or helps_launching(group[0])]
    return Order(first, second, able, [*(group for group in soon if group not in second), *last])


def switchable(remedies: Sequence[Planned]) -> list[Planned]:
    """Those that can take turns."""
    return [remedy for remedy in remedies if traits_of(remedy.id).is_switchable]


def helps_launching(remedy: Planned) -> bool:
    """What makes the device quicker shows little as long as launching holds it up."""
    return traits_of(remedy.id).acts_on is Bottleneck.LAUNCHING


def is_device_speedup(group: Group) -> bool:
    """Whether all of it makes the device itself quicker."""
    return all(traits_of(remedy.id).acts_on is Bottleneck.DEVICE for remedy in group)


def finest_first(able: Sequence[Planned]) -> list[Planned]:
    """Those that build on others last: they join the group of the others."""
    return sorted(able, key=lambda remedy: (bool(traits_of(remedy.id).builds_on), _rounds(remedy)))


def worth_its_rounding(helpful: Sequence[Planned], gain_of: Callable[[Planned], float]) -> list[Planned]:
    """Without a coarser rounding that gains hardly more than a finer one."""
    coarse = _coarse(helpful)
    finer = max((gain_of(remedy) for remedy in helpful if remedy not in coarse and _rounds(remedy)), default=0.0)
    return [remedy for remedy in helpful if remedy not in coarse or gain_of(remedy) > _WORTH_ITS_ROUNDING * finer]


def _coarse(able: Sequence[Planned]) -> list[Planned]:
    """Those that round more than the finest that rounds at all: such products gain the same way, and may gain more."""
    finest = min((by for remedy in able if (by := _rounds(remedy))), default=0.0)
    return [remedy for remedy in able if _rounds(remedy) > finest]


def _rounds(remedy: Planned) -> float:
    return traits_of(remedy.id).rounding
