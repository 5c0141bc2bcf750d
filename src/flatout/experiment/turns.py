"""Which of several remedies are worth a place in the profile: all of them in turns, within one process.

Only what can be switched on and off in mid-training takes part. The script as it is takes two of the turns: what these
two differ by is luck, and if that looks like a gain, nothing that was measured here counts but what is surely more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatout.attach.trial.screening import TIMED, turn_steps
from flatout.experiment.judge import state_of_refusal
from flatout.experiment.statistics.decision import Candidate, judge_candidates
from flatout.experiment.statistics.intervals import IN_TURNS, with_interval
from flatout.records.fix import Planned, State
from flatout.records.message import Message
from flatout.records.proof import BAR, Decision
from flatout.records.trial import Trial
from flatout.remedies.catalogue import traits_of
from flatout.remedies.traits import Bottleneck

# Batches that a worker has made ahead of time are as they were made; one is being used.
_MADE_AHEAD, _FEWEST_SETTLING = 2, 8
# Steps of a turn that are timed, as many as fit into so much time.
_TIMED, _TIMED_S = (4, TIMED), 1.5
# The first where there is time for them; with fewer than the last nothing is measured.
ROUNDS = (6, 4)
BARE, AGAIN, ALL = "as it is", "as it is, again", "all of them"

Arms = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Screened:
    """What the turns say of each remedy."""

    decisions: dict[str, Decision]
    # Refused or failed in this process, and why.
    refused: dict[str, tuple[State, Message]]


def build_arms(remedies: Sequence[Planned]) -> Arms:
    """Each by itself, and one that hardly helps without another together with that."""
    every = {remedy.id: remedy.value for remedy in remedies}
    single = []
    for remedy in remedies:
        partner = partner_of(remedy, remedies)
        together = {} if partner is None else {partner.id: partner.value}
        single.append((remedy.id, {**together, remedy.id: remedy.value}))
    return ((BARE, {}), (AGAIN, {}), *single, *([(ALL, every)] if len(single) > 1 else []))


def partner_of(remedy: Planned, remedies: Sequence[Planned]) -> Planned | None:
    """The one among these that it is tried with."""
    wanted = traits_of(remedy.id).builds_on
    return next((other for name in wanted for other in remedies if other.id == name), None)


def can_rest(remedies: Sequence[Planned]) -> bool:
    return all(traits_of(remedy.id).can_rest for remedy in remedies)


def build_resting_arms(remedies: Sequence[Planned]) -> Arms:
    """Turns with and without them, of a process that has them."""
    without = {remedy.id: None for remedy in remedies}
    return ((BARE, without), (AGAIN, without), (ALL, {}))


def resting_steps(remedies: Sequence[Planned], workers: int) -> int:
    """Steps until what was made before a turn has been used up."""
    is_of_batches = any(traits_of(remedy.id).acts_on is Bottleneck.LOADING for remedy in remedies)
    return _FEWEST_SETTLING + (_MADE_AHEAD * workers if is_of_batches else 0)


def count_timed_steps(step_s: float) -> int:
    """Steps of each turn that are timed: fewer where they are slow, and each says more."""
    return int(min(_TIMED[1], max(_TIMED[0], _TIMED_S / step_s)))


def count_turn_steps(
    arms: Arms, warm_up: int = 10, rounds: int = ROUNDS[0], timed: int = TIMED, settling: int = 0
) -> int:
    return warm_up + rounds * sum(turn_steps(remedies, timed, settling) for _, remedies in arms) + 1


def weigh_turns(trials: Mapping[str, Trial], remedies: Sequence[Planned]) -> Screened | None:
    """None where the turns cannot tell: too few of them, or the script differs from itself."""
    bare = _alike(trials)
    if bare is None:
        return None
    refused: dict[str, tuple[State, Message]] = {
        remedy.id: (state_of_refusal(state), state.why)
        for remedy in remedies
        for state in trials[remedy.id].states
        if state.id == remedy.id and state.state != "applied"
    }
    candidates = [Candidate(remedy.id, [trials[remedy.id]]) for remedy in remedies if remedy.id not in refused]
    judged = judge_candidates(bare, candidates, IN_TURNS) if candidates else ()
    decisions = {decision.arm: decision for decision in judged}
    for remedy in remedies:
        partner = partner_of(remedy, remedies)
        if partner is not None and {remedy.id, partner.id} <= set(decisions):
            _judge_pair(trials, decisions, remedy.id, partner.id)
    return Screened(decisions, refused)


def _judge_pair(trials: Mapping[str, Trial], decisions: dict[str, Decision], name: str, partner: str) -> None:
    """Where it adds to its partner, both are worth what they gain together; else the partner stands by itself."""
    (over,) = judge_candidates([trials[partner]], [Candidate(name, [trials[name]])], IN_TURNS)
    if over.judgement == "kept" and decisions[name].judgement == "kept":
        decisions[partner] = replace(decisions[name], arm=partner)
    else:
        decisions[name] = over


def compare_with_and_without(trials: Mapping[str, Trial]) -> Decision | None:
    """What some remedies gain together; None where turns cannot tell. More than what the baseline differs by itself."""
    luck = _luck(trials)
    if luck is None or ALL not in trials:
        return None
    decision = judge_candidates([trials[BARE], trials[AGAIN]], [Candidate(ALL, [trials[ALL]])], IN_TURNS)[0]
    if not _differs(luck):
        return decision
    assert luck.gain is not None
    by = max(luck.gain.high, 1.0 / luck.gain.low)
    if decision.gain is None or decision.gain.low <= BAR * by:
        return None
    gain = replace(decision.gain, low=decision.gain.low / by, high=decision.gain.high * by)
    return replace(decision, gain=gain, why=with_interval(gain))


def _alike(trials: Mapping[str, Trial]) -> list[Trial] | None:
    """Both turns of what the others are compared with, unless they differ by themselves."""
    luck = _luck(trials)
    return [trials[BARE], trials[AGAIN]] if luck is not None and not _differs(luck) else None


def _luck(trials: Mapping[str, Trial]) -> Decision | None:
    """What the script as it is seems to gain over itself; None where too little was measured."""
    bare, again = trials.get(BARE), trials.get(AGAIN)
    if bare is None or again is None:
        return None
    (luck,) = judge_candidates([bare], [Candidate(AGAIN, [again])], IN_TURNS)
    return luck if luck.gain is not None else None


def _differs(luck: Decision) -> bool:
    assert luck.gain is not None
    return luck.judgement == "kept" or luck.gain.high < 1.0 / BAR
