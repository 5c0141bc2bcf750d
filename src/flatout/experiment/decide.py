"""Whether some remedies gain on top of what is kept, and whether their losses stay what they were.

Losses are compared with control trials: how far they part when nothing is wrong. The script run again is the first
answer. It parts from itself by float32's last bits, and these take some dozen steps to grow; what rounds a thousand
times coarser parts at once, and in a training that is chaotic at its beginning looks like harm. So losses that are
outside of the first are compared with trials whose weights were perturbed by as much as the remedy rounds: what no
rounding of that size would do by itself is the remedy's doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flatout.experiment.bench import BARE, KEPT, LAST_BITS, LOSSES, Bench
from flatout.experiment.judge import (
    counted_by,
    draws_other_numbers,
    is_repeatable,
    lossless_part,
    refusal,
    with_enough_losses,
)
from flatout.experiment.statistics.ceiling import measure_ceiling
from flatout.experiment.statistics.decision import Candidate, is_promising, is_unsure, judge_candidates
from flatout.experiment.statistics.quality import FEWEST_CONTROLS, judge_envelope
from flatout.experiment.statistics.rates import even_out_steps
from flatout.experiment.turns import (
    Screened,
    build_arms,
    build_resting_arms,
    can_rest,
    compare_with_and_without,
    resting_steps,
    weigh_turns,
)
from flatout.records.fix import Planned
from flatout.records.message import message
from flatout.records.proof import BAR, Ceiling, Decision, Envelope
from flatout.records.trial import Trial
from flatout.remedies.catalogue import traits_of

MOST_CONTROLS = 3


def coarsest_rounding(names: Iterable[str]) -> float:
    """The coarsest rounding among these remedies, as a share of a number; 0.0 where none is coarser than float32's."""
    return max((traits_of(name).rounding for name in names), default=0.0)


def make_control_trials(bench: Bench, profile: Mapping[str, Any], reserve_s: float) -> list[Trial]:
    """Up to three trials of a profile whose losses differ by chance alone, if there is time beside the reserve."""
    for _ in range(MOST_CONTROLS):
        made = with_enough_losses(bench.made.of(profile))
        has_time = bench.affords(profile, max(1, FEWEST_CONTROLS - len(made)), reserve_s, LOSSES)
        if is_repeatable(made):
            if has_time and not bench.made.perturbed(profile, LAST_BITS):
                bench.perturb(profile, LAST_BITS)
            return [*made, *bench.made.perturbed(profile, LAST_BITS)]
        if len(made) >= MOST_CONTROLS or not has_time:
            return made
        bench.trial(profile, KEPT if profile else BARE, again=True, losses=LOSSES)
    return with_enough_losses(bench.made.of(profile))


def check_losses(
    bench: Bench,
    trials: Sequence[Trial],
    lossless: Mapping[str, Any],
    own: Callable[[], Sequence[Trial]],
    reserve_s: float,
) -> Envelope:
    """The losses of trials beside those of the script, which `own` makes where they are missing.

    `lossless` is the part of the trials' profile that changes no number.
    """
    by = 0.0 if any(map(draws_other_numbers, trials)) else coarsest_rounding(trials[0].remedies)
    first = None
    if not by or len(with_enough_losses(bench.made.perturbed(lossless, by))) < FEWEST_CONTROLS:
        first = judge_envelope(own(), trials)
        if not by or first.verdict != "outside":
            return first
    beside = _perturbed(bench, lossless, by, reserve_s)
    if first is not None and len(beside) < FEWEST_CONTROLS:
        return first
    found = judge_envelope(beside, trials)
    return replace(found, sentence=message("envelope.beside_perturbed", sentence=found.sentence), nudged_by=by)


def _perturbed(bench: Bench, profile: Mapping[str, Any], by: float, reserve_s: float) -> list[Trial]:
    """Made where they are missing and there is time: fewer than two would tell nothing."""
    for _ in range(MOST_CONTROLS):
        made = with_enough_losses(bench.made.perturbed(profile, by))
        missing = max(1, FEWEST_CONTROLS - len(made))
        if len(made) >= MOST_CONTROLS or not bench.affords(profile, missing, reserve_s, LOSSES):
            break
        bench.perturb(profile, by)
    return with_enough_losses(bench.made.perturbed(profile, by))


# The attempt itself: as many trials of both profiles as it takes.

_MOST_REPEATS = 4
# So much more than it had to be is not luck, even in a single trial.
_PLENTY = 1.1
LARGE = 1.3
# Trials that see pauses, of what there was before a remedy that is about them.
_SEEN = 2


@dataclass(frozen=True, slots=True)
class Attempt:
    """Remedies on top of what is kept. `planned` were planned so far: each has a chance to look good by luck."""

    group: Sequence[Planned]
    arm: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    planned: int

    @property
    def values(self) -> dict[str, Any]:
        return {remedy.id: remedy.value for remedy in self.group}

    @property
    def foretold(self) -> list[float]:
        """What findings predict of each at least."""
        return [remedy.predicted.low for remedy in self.group if remedy.predicted is not None]


def measure_until_sure(bench: Bench, turns: Turns, attempt: Attempt, is_brief: bool = False) -> Decision:
    """By as many trials as it takes and there is time for. `is_brief`: what looks like little may stay unsure."""
    before, after = attempt.before, attempt.after
    pausing, by = bench.sizes.sees(attempt.values), coarsest_rounding(attempt.values)
    # Where losses will have to be compared with such a rounding, trials made anyway serve as control trials too.
    is_control = by and before == lossless_part(before) and not is_repeatable(bench.made.of({}))

    def make(profile: Mapping[str, Any]) -> None:
        if profile is after:
            bench.trial(after, attempt.arm, again=True)
        elif is_control and not steps:
            bench.perturb(before, by)
        else:
            bench.trial(before, KEPT if before else BARE, again=True, losses=steps)

    if (steps := bench.to_see(attempt.values, under=before)) > 0:
        # What came before saw too few pauses, if any: it counts only where it is as long.
        for _ in range(_SEEN - len(bench.made.timed(before, pausing))):
            make(before)
    decision = judge_attempt(bench, attempt)
    has_turns = not steps
    large = min(LARGE, max(_PLENTY, *attempt.foretold)) if attempt.foretold else LARGE
    if is_brief and is_unsure(decision) and mid_of(decision) < large:
        return decision
    for _ in range(_MOST_REPEATS - 1):
        # A large gain has to be seen twice, over what was seen twice, and no more; so has one that was foretold.
        is_large = mid_of(decision) > large
        once = [arm for arm in (after, before) if is_large and len(bench.made.timed(arm)) == 1][:1]
        is_open = _is_open(decision, bench.made.knows_spread(before, pausing))
        if has_turns and not once and (is_open or is_unsure(decision)):
            has_turns = False
            if (by_turns := turns.together(attempt.group, after, 2 * (_MOST_REPEATS - 1))) is not None:
                return by_turns
        # Where nothing is kept yet these trials are the proof's own, and may have its time.
        arms = once or [before, after]
        if not is_open or not bench.affords(after, len(arms), reserve_s=None if before else 0.0):
            break
        for arm in arms:
            make(arm)
        decision = judge_attempt(bench, attempt)
    return decision


def _is_open(decision: Decision, is_known: bool) -> bool:
    """Whether more trials could change it. `is_known`: whether trials like these have shown what they differ by."""
    gain = decision.gain
    if is_promising(decision) or (not is_known and gain is not None and gain.mid > BAR > gain.low):
        return True
    return decision.judgement == "kept" and gain is not None and gain.trials[1] < 2 and gain.low < _PLENTY


def judge_attempt(bench: Bench, attempt: Attempt) -> Decision:
    """By the trials there are of both; it may be judged again after more of them."""
    by, steps, arm = counted_by(attempt.values), bench.sizes.sees(attempt.values), " + ".join(attempt.values)
    arms = [bench.made.timed(profile, steps) for profile in (attempt.before, attempt.after)]
    spread = bench.made.spread(attempt.before, steps, by, evenly=by == "total")
    if by == "total":
        (in_steps,) = judge_candidates(arms[0], [Candidate(arm, arms[1])], bench.made.spread(attempt.before, steps))
        if in_steps.judgement == "harmful":
            return in_steps
        # What processes differ by in all their steps has nothing to do with pauses.
        arms = even_out_steps(arms)
    candidate = Candidate(arm, arms[1], by)
    (decision,) = judge_candidates(arms[0], [candidate], spread, _MOST_REPEATS * max(1, attempt.planned))
    # One that does what a finding foretold has not been picked from among many by its luck.
    foretold = [low for low in attempt.foretold if low > BAR]
    if decision.gain is not None and foretold and decision.gain.mid >= max(foretold):
        (decision,) = judge_candidates(arms[0], [candidate], spread, _MOST_REPEATS)
    return decision


def mid_of(decision: Decision) -> float:
    return decision.gain.mid if decision.gain is not None else 0.0


# Arms that take turns within one process: the difference between processes has no part in the result.


class Turns:
    """`read(trial)` gives the arms that took turns in it."""

    def __init__(self, bench: Bench, read: Callable[[Trial], Mapping[str, Trial]]) -> None:
        self._bench = bench
        self._read = read

    def switched(self, able: Sequence[Planned], profile: Mapping[str, Any]) -> Screened | None:
        """Each of them by itself on top of a profile; None where that does not pay or cannot tell."""
        if any(traits_of(name).records_operations for name in profile):
            return None
        arms = build_arms(able)
        trial = self._bench.screening(profile, arms, instead_of=len(arms))
        return weigh_turns(self._read(trial), able) if trial is not None and trial.ended_well else None

    def together(self, group: Sequence[Planned], profile: Mapping[str, Any], instead_of: int) -> Decision | None:
        """A profile with and without some of it; None where they cannot rest, or so many processes are sooner done."""
        if not can_rest(group):
            return None
        arms, settling = build_resting_arms(group), resting_steps(group, self._bench.workers)
        trial = self._bench.screening(profile, arms, instead_of, settling)
        if trial is None or not trial.ended_well or any(refusal(remedy, trial) is not None for remedy in group):
            return None
        decision = compare_with_and_without(self._read(trial))
        return replace(decision, why=message("tried.in_turns", why=decision.why)) if decision is not None else None


# The distance to the ceiling.


def measure_distance(bench: Bench, profile: Mapping[str, Any], feed: Sequence[Trial] = ()) -> Ceiling | None:
    """To the ceiling; with pauses where the profile is about them and the ceiling has seen some."""
    at, by, seen = bench.ceiling(profile), counted_by(profile), bench.sizes.sees(profile)
    if by == "total" and not (any(at.pause_s) and bench.made.timed(profile, seen)):
        by, seen = "blocks", 0
    return measure_ceiling(bench.made.timed(profile, seen), [at], feed, bench.made.spread(profile, seen, by), by)
