"""The proof at the end of a search: the whole profile against the bare script, in turns, and what that says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from flatout.experiment.bench import BARE, LOSSES, Bench
from flatout.experiment.calm import describe_disturbed
from flatout.experiment.decide import MOST_CONTROLS, check_losses, make_control_trials, measure_distance
from flatout.experiment.judge import (
    compare_bits,
    counted_by,
    draws_other_numbers,
    is_repeatable,
    with_enough_losses,
    workers_of,
)
from flatout.experiment.search import Search
from flatout.experiment.statistics.ceiling import training_hours
from flatout.experiment.statistics.intervals import measure_gain
from flatout.experiment.statistics.quality import judge_metric
from flatout.experiment.statistics.rates import arm_per_s, common_unit, keep_measured, without_pauses
from flatout.records.fix import Fix, LeftOut, Quality, compare_predictions
from flatout.records.message import Message, message
from flatout.records.proof import BAR, By, Identity, MeasuredGain, Spread
from flatout.records.report import Finding, RunReport
from flatout.records.trial import ENDINGS, Trial
from flatout.remedies.catalogue import known, traits_of
from flatout.remedies.traits import Bottleneck

PROFILE = "profile"
# A class that is not allowed is worth a word from this predicted gain on.
_WORTH_ALLOWING = 1.1
# Bare and remedied, so that a machine that slows down meanwhile slows both.
_TURNS = (False, True, True, False, True, False, False, True)
_FEWEST_TURNS = 2
# An interval no wider than this for its middle, or than this part of the gain, needs no more trials.
_SHARP, _OF_GAIN = 0.04, 0.25


def prove_profile(bench: Bench, search: Search) -> Quality:
    """The profile is measured again as a whole. What does not hold is withdrawn from the search's result."""
    quality = _prove_once(bench, search)
    why = _objection(quality, search.found.profile)
    if why is None:
        return quality
    lossless = search.lossless()
    search.withdraw(why, kept={} if lossless == search.found.profile else lossless)
    return _prove_once(bench, search) if search.found.profile else Quality()


def _objection(quality: Quality, profile: Mapping[str, Any]) -> Message | None:
    """Why the training is not what it was. One that is meant to change is judged by the user's metric alone."""
    remedies = known()
    is_meant = any(remedies[name].safety == "training" for name in profile)
    if quality.envelope is not None and quality.envelope.verdict == "outside" and not is_meant:
        return quality.envelope.sentence
    if quality.metric is not None and quality.metric.verdict == "worse":
        return quality.metric.sentence
    return None


def _prove_once(bench: Bench, search: Search) -> Quality:
    profile = search.found.profile
    confirm(bench, search)
    if not has_gain(bench, profile):
        search.withdraw(message("tried.withdrawn"))
        return Quality()
    # The device alone comes before the control trials, and the loaders alone where there is time left after them.
    if has_time := bench.left_s > 0:
        bench.ceiling(profile)
    quality = check_quality(bench, search)
    if has_time:
        alone = [bench.feed(profile)] if bench.affords(profile, reserve_s=0.0) else []
        search.found.ceiling = measure_distance(bench, profile, alone) or search.found.ceiling
    return quality


def confirm(bench: Bench, search: Search) -> None:
    """Fresh processes of both arms, until the interval is sharp or the time is spent; two of each there are anyway."""
    profile = search.found.profile
    for place, is_remedied in enumerate(_TURNS):
        has_two = [len(arm) >= 2 for arm in _arms(bench, profile)]
        # One of each, and one for the ceiling.
        has_time = bench.affords(profile, 2, reserve_s=bench.lasts_s({}, _losses_of_bare(bench, search)))
        if place % 2 == 0 and all(has_two):
            is_sharp = place >= _FEWEST_TURNS and not _is_wide(bench, profile)
            if is_sharp or not has_time:
                return
        # What was begun is brought to a pair; where the time is spent only what is missing is made.
        if has_time or place % 2 == 1 or not has_two[is_remedied]:
            _turn(bench, search, is_remedied)


def has_gain(bench: Bench, profile: Mapping[str, Any]) -> bool:
    """Whether the whole profile surely gains, by all trials of both arms."""
    found = _gain(bench, profile)
    return found is not None and found.low > BAR


def _gain(bench: Bench, profile: Mapping[str, Any]) -> MeasuredGain | None:
    by = counted_by(profile)
    return measure_gain(*_arms(bench, profile), _spread(bench, profile), by)


def _arms(bench: Bench, profile: Mapping[str, Any]) -> tuple[list[Trial], list[Trial]]:
    """Both arms. Where the baseline has no time to see pauses it counts without them, which makes the gain smaller."""
    bare, after = bench.made.timed({}, bench.bare_sees(profile)), bench.made.timed(profile, bench.sizes.sees(profile))
    return [without_pauses(trial) for trial in bare] if _sees_none(bench, profile) else bare, after


def _sees_none(bench: Bench, profile: Mapping[str, Any]) -> bool:
    """Whether the profile is about pauses, but the bare script has no time to see them."""
    return bench.sizes.sees(profile) > 0 and not bench.bare_sees(profile)


def _spread(bench: Bench, profile: Mapping[str, Any]) -> Spread:
    # The bare script's, which was run again the most.
    by = "blocks" if _sees_none(bench, profile) else counted_by(profile)
    return bench.made.spread({}, bench.bare_sees(profile), by)


def _turn(bench: Bench, search: Search, is_remedied: bool) -> None:
    """Where losses will have to be compared, trials that are made anyway are made to serve for that as well."""
    profile = search.found.profile
    if is_remedied:
        losses = 0 if profile == search.lossless() and is_repeatable(bench.made.of({})) else LOSSES
        bench.trial(profile, PROFILE, again=True, losses=losses)
    elif any(map(draws_other_numbers, bench.made.of(profile))) and len(bench.made.reseeded()) < MOST_CONTROLS:
        bench.reseed(_pauses(bench, profile))
    else:
        bench.trial({}, BARE, again=True, losses=_losses_of_bare(bench, search))


def _losses_of_bare(bench: Bench, search: Search) -> int:
    """What changes numbers is held against the lossless part: the script as it is need not go as far."""
    own = 0 if is_repeatable(bench.made.of({})) else LOSSES
    return max(own, bench.losses_for(search.lossless()), _pauses(bench, search.found.profile))


def _pauses(bench: Bench, profile: Mapping[str, Any]) -> int:
    """Steps in all of a trial of the bare script that is to see pauses; 0 where it need not, or has no time to."""
    return bench.to_see(profile, under={}) if bench.bare_sees(profile) else 0


def _is_wide(bench: Bench, profile: Mapping[str, Any]) -> bool:
    found = _gain(bench, profile)
    return found is not None and found.high - found.low > max(_SHARP * found.mid, _OF_GAIN * (found.mid - 1.0))


def conclude(bench: Bench, search: Search, report: RunReport, quality: Quality) -> Fix:
    """The record of the search, from all trials that were made."""
    found = search.found
    bare, after = map(keep_measured, _arms(bench, found.profile))
    by, spread = counted_by(found.profile), _spread(bench, found.profile)
    unit = common_unit([*bare, *after])
    pauses = (
        (message("fix.pauses_in_after_alone"),)
        if _sees_none(bench, found.profile)
        else _on_pauses(bare, after, bench.made.all, by)
    )
    failures: dict[str, Message] = {
        trial.arm: message("trial.ended", ending=ENDINGS[trial.ending], why=trial.why)
        for trial in bench.made.all
        if not trial.ended_well
    }
    return Fix(
        command=bench.settings.command,
        device=report.run.device,
        verdict=report.verdict,
        tried=tuple(found.tried),
        left_out=tuple(left_out for left_out in found.left_out.values() if left_out.id not in found.profile),
        profile=found.profile,
        unit=unit,
        before_per_s=arm_per_s(bare, unit, by) if bare else None,
        after_per_s=arm_per_s(after, unit, by) if after else None,
        gain=measure_gain(bare, after, spread, by) if found.profile else None,
        hours_before=training_hours(bare, bare, spread, by),
        hours_after=training_hours(bare, after, spread, by) if found.profile else None,
        ceiling=found.ceiling,
        quality=quality,
        ended=message(found.ended.value),
        trials=len(bench.made.all),
        took_s=bench.took_s,
        written=tuple(dict.fromkeys(file for trial in bench.made.all for file in trial.written)),
        uncontained=tuple(dict.fromkeys(name for trial in bench.made.all for name in trial.uncontained)),
        sources=_sources(search.findings),
        workers=workers_of(bench.made.of(found.profile), search.findings),
        notices=(
            *pauses,
            *find_warnings(bench.made.all, found.profile, search.findings),
            *_not_allowed_yet(found.left_out.values()),
        ),
        failures=failures,
        disturbed=describe_disturbed(bench.made.all),
        foretold=compare_predictions(found.tried),
        ladder=search.ladder(),
    )


def _not_allowed_yet(left_out: Iterable[LeftOut]) -> Iterator[Message]:
    """For each class that the user has not allowed, what it promises; what is worth a word."""
    promised: dict[str, dict[str, float]] = {}
    for remedy in left_out:
        if remedy.forbidden_class is not None and remedy.predicted is not None:
            promised.setdefault(remedy.forbidden_class, {})[remedy.id] = remedy.predicted.mid
    for safety, gains in promised.items():
        best = max(gains.values())
        if best >= _WORTH_ALLOWING:
            yield message("fix.not_allowed_yet", safety=safety, remedies=", ".join(sorted(gains)), gain=best)


def _sources(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Where they are, and where what they are about is written. Only what a patch can be made for."""
    places = [
        place for finding in findings for place in (finding.location, *(more.location for more in finding.related))
    ]
    return tuple(dict.fromkeys(place.file for place in places if place is not None and place.file.endswith(".py")))


def _on_pauses(bare: Sequence[Trial], after: Sequence[Trial], made: Sequence[Trial], by: By) -> tuple[Message, ...]:
    """What of the pauses is not in the figures."""
    seen, seen_after = (any(any(trial.pause_s) for trial in trials) for trials in (bare, after))
    if by == "total":
        return (message("fix.pauses_unseen"),) if seen and not seen_after else ()
    return (message("fix.pauses_uncounted"),) if any(any(trial.pause_s) for trial in made) else ()


def check_quality(bench: Bench, search: Search) -> Quality:
    """Bit for bit where that can be asked; else, and for what rounds differently, by the loss."""
    profile, settings = search.found.profile, bench.settings
    lossless = search.lossless()
    after = bench.made.of(profile)
    same = _identity(bench, lossless) if lossless else None
    is_identical = same is not None and same.verdict == "identical"
    found = None
    if lossless != profile or not is_identical:
        make = partial(_control_trials, bench, search, is_identical)
        found = check_losses(bench, with_enough_losses(after) or after, lossless, make, reserve_s=0.0)
    if settings.metric is None:
        return Quality(same, found)
    # Losses of what changes nothing are the script's own, and so is its metric.
    own = [*bench.made.timed({}), *(bench.made.timed(lossless) if is_identical and lossless != profile else ())]
    return Quality(same, found, judge_metric(own, after, higher_is_better=settings.higher))


def _identity(bench: Bench, lossless: Mapping[str, Any]) -> Identity:
    """Of the part that is to change nothing, where it was tried by itself or there is time for that."""
    if not bench.made.of(lossless) and not bench.affords(lossless, reserve_s=0.0):
        return Identity("not comparable", 0, message("identity.no_time"))
    return compare_bits(bench.made.of({}), bench.trial(lossless, "lossless part"))


def _control_trials(bench: Bench, search: Search, is_identical: bool) -> list[Trial]:
    """What the losses are held against; made where they are missing and there is time."""
    if not any(map(draws_other_numbers, bench.made.of(search.found.profile))):
        return make_control_trials(bench, search.lossless() if is_identical else {}, reserve_s=0.0)
    while len(bench.made.reseeded()) < MOST_CONTROLS and bench.affords({}, reserve_s=0.0, losses=LOSSES):
        bench.reseed()
    return bench.made.reseeded()


# What a user should know of a profile that was kept, though the figures do not say it.

# A dataset that keeps things in every worker.
_KEEPS = "ME706"
# Of what a remedy tells while it runs.
_MEMORY = "memory"
# Too little time, or a loss that another remedy beside it has spoilt, says nothing of a profile.
_FAULTS = ("crashed", "hung", "out of memory")


def find_warnings(
    trials: Sequence[Trial], profile: Mapping[str, Any], findings: Sequence[Finding] = ()
) -> tuple[Message, ...]:
    """Each once, in the order in which they came up."""
    keeps = any(finding.code == _KEEPS for finding in findings) and any(
        traits_of(name).acts_on is Bottleneck.LOADING for name in profile
    )
    return (*dict.fromkeys(_warnings(trials, profile)), *([message("fix.dataset_keeps", code=_KEEPS)] if keeps else ()))


def _warnings(trials: Sequence[Trial], profile: Mapping[str, Any]) -> Iterator[Message]:
    for trial in trials:
        if not profile or trial.remedies != profile:
            continue
        if trial.ending in _FAULTS:
            yield message("fix.profile_failed", ending=ENDINGS[trial.ending])
        for state in trial.states:
            if _MEMORY in state.live:
                yield message("fix.in_a_trial", what=state.live[_MEMORY])
