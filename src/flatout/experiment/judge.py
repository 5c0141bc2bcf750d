"""What trials say of remedies: how their gain is counted, whether their bits can be compared, why one says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from flatout.experiment.sizing import tunes_itself
from flatout.experiment.statistics.quality import FEWEST_STEPS, judge_identity
from flatout.records.fix import Planned, State, Tried
from flatout.records.message import Message, message
from flatout.records.proof import By, Decision, Identity
from flatout.records.report import Finding, RemedyState
from flatout.records.trial import ENDINGS, Trial
from flatout.remedies.catalogue import known, traits_of
from flatout.remedies.loader.probe import DRAWS_OTHERS
from flatout.remedies.loader.workers import WORKERS_SET
from flatout.remedies.traits import Bottleneck

_OF_PAUSES = "CA"  # findings on the loader of an evaluation
# What loads and brings the batches: no faster than the device alone can use them.
_FEEDING = (Bottleneck.LOADING, Bottleneck.TRANSFER)


def only_feeds(group: Sequence[Planned]) -> bool:
    """Whether it gains nothing but batches that come sooner; what it gains between epochs no ceiling tells of."""
    every = [traits_of(remedy.id) for remedy in group]
    return all(traits.acts_on in _FEEDING and not traits.gains_in_pauses for traits in every)


def lossless_part(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a profile that changes no number."""
    remedies = known()
    return {name: value for name, value in profile.items() if remedies[name].safety == "lossless"}


def with_enough_losses(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if len(trial.losses) >= FEWEST_STEPS]


def is_repeatable(trials: Sequence[Trial]) -> bool:
    """Whether the same gives the very same losses again; False where it was not run again."""
    return len(trials) > 1 and judge_identity(trials[:1], trials[1]).verdict == "identical"


def counted_by(names: Iterable[str]) -> By:
    """What gains in the pauses and between the epochs is not seen in the steps alone."""
    return "total" if any(traits_of(name).gains_in_pauses for name in names) else "blocks"


def draws_other_numbers(trial: Trial) -> bool:
    """Whether samples drew other random numbers under this trial's remedies: then no loss can be the very same."""
    told = [state.live.get("randomness") for state in trial.states]
    return any(isinstance(fact, Message) and fact.id == DRAWS_OTHERS for fact in told)


def compare_bits(before: Sequence[Trial], trial: Trial, bare: Sequence[Trial] = ()) -> Identity:
    """Whether it trains to the very same numbers, where that can be asked of it.

    `bare` are trials of the script as it is: where there is but one of `before`, they say whether it repeats itself.
    """
    same = judge_identity(before, trial)
    if same.verdict != "differs":
        return same
    if draws_other_numbers(trial):
        return replace(same, verdict="not comparable", sentence=message("identity.other_random_numbers"))
    if len(bare) < 2 or judge_identity(bare[1:], bare[0]).verdict == "identical":
        return same
    if all(state.safety == "lossless" for state in trial.states):
        return judge_identity(bare, trial)
    return replace(same, verdict="not comparable", sentence=message("identity.script_not_repeatable"))


def workers_found(trial: Trial) -> dict[str, int]:
    """What loaders came to that find their workers while they run, by the line that makes them."""
    return {
        place: workers
        for state in trial.states
        if state.state == "applied" and tunes_itself(state.id, state.value)
        for place, told in state.live.items()
        if (workers := _workers_set(told)) is not None
    }


def _workers_set(told: object) -> int | None:
    """The number that the remedy gave a loader, by what it told of it."""
    return int(told.args["after"]) if isinstance(told, Message) and told.id == WORKERS_SET else None


def workers_of(trials: Sequence[Trial], findings: Iterable[Finding]) -> int | None:
    """Workers that the training's loader settled at: their median; of several loaders on one line, the most."""
    loaders = {
        f"{PurePath(finding.location.file).name}:{finding.location.line}"
        for finding in findings
        if finding.remedy is not None
        and _sets_workers(finding.remedy)
        and not finding.code.startswith(_OF_PAUSES)
        and finding.location is not None
    }
    said = [
        [
            workers
            for place, told in state.live.items()
            if _line(place) in loaders and (workers := _workers_set(told)) is not None
        ]
        for trial in trials
        for state in trial.states
        if _sets_workers(state.id)
    ]
    most = sorted(max(found) for found in said if found)
    return most[len(most) // 2] if most else None


def _sets_workers(remedy: str) -> bool:
    found = known().get(remedy)
    return found is not None and found.traits.knob is not None and found.traits.knob.setting == "num_workers"


def _line(place: str) -> str:
    """Of "loader.py:46 (2)", the second loader that this line makes."""
    return place.partition(" (")[0]


def as_tried(
    remedy: Planned, decision: Decision, before: Mapping[str, Any], group: Sequence[Planned], same: Identity | None
) -> Tried:
    """One remedy of a group. A value that gains less than the one that is kept is outdone, not harmful."""
    is_outdone = remedy.id in before and decision.judgement in ("neutral", "harmful")
    others = tuple(other.id for other in group if other is not remedy)
    why = message("tried.together", why=decision.why, remedies=others) if others else decision.why
    return Tried(remedy, "outdone" if is_outdone else decision.judgement, why, decision, same, others)


def refusal(remedy: Planned, trial: Trial) -> tuple[State, Message] | None:
    """Why this trial says nothing of the remedy's speed."""
    if not trial.ended_well:
        ending = ENDINGS[trial.ending]
        if not trial.why:
            return "failed", message("tried.trial_ended", ending=ending)
        return "failed", message("tried.trial_ended_because", ending=ending, why=trial.why)
    state = next((state for state in trial.states if state.id == remedy.id), None)
    if state is None:
        return "failed", message("tried.not_in_force")
    if state.state != "applied":
        return state_of_refusal(state), state.why
    evidence = traits_of(remedy.id).evidence
    is_missing = evidence is not None and not state.live.get(evidence.key)
    return ("not measured", evidence.missing) if evidence is not None and is_missing else None


def state_of_refusal(state: RemedyState) -> State:
    return "refused" if state.state in ("refused", "reverted") else "failed"
