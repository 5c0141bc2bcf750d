"""Which remedies stay. Kept is what surely gains over 1%; all others are undone, with their figure.

Ten arms judged at once have ten chances to look good by luck, and so has an arm that is judged again after more trials.
The chance of keeping anything at all that gains nothing is held to 5% over all of them: the arm that is surest of its
gain is held to the strictest measure, the next to one arm's share less, and so on until one fails (Holm's method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.experiment.statistics.intervals import (
    CONFIDENCE,
    IN_TURNS,
    Comparison,
    compare_arms,
    percent,
    student_quantile,
    with_interval,
)
from flatout.experiment.statistics.rates import FEWEST_STEPS, keep_measured
from flatout.records.message import Message, message, verbatim
from flatout.records.proof import BAR, By, Decision, MeasuredGain, Spread
from flatout.records.trial import WELL, Trial, describe_ending

_MOST_MORE = 8
# Trials of arms that were run more than once: for one judgement, and for several with their more chances.
_CALIBRATED_BY = (2, 3)
# Two will do where this much is certain: two that agree by luck do not make so much of nothing.
_PLAIN = 1.10


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm to judge. `by` is "total" for what gains in rare long steps: evaluation, checkpoints, logging."""

    arm: str
    trials: Sequence[Trial]
    by: By = "blocks"


def judge_candidates(
    before: Sequence[Trial], candidates: Sequence[Candidate], spread: Spread, looks: int = 1
) -> tuple[Decision, ...]:
    """A decision on each, in order. `looks` is how many times they may be judged in all, with more trials each time."""
    assert looks >= 1
    decided: dict[int, Decision] = {}
    found: dict[int, Comparison] = {}
    for place, candidate in enumerate(candidates):
        why = _not_measured(before, candidate)
        if why is not None:
            decided[place] = Decision(candidate.arm, "not measured", None, why)
            continue
        comparison = compare_arms(before, candidate.trials, spread, candidate.by)
        assert comparison is not None
        found[place] = comparison
    doubt, left = (1.0 - CONFIDENCE) / looks, len(found)
    enough = _CALIBRATED_BY[len(found) > 1 or looks > 1]
    for place in sorted(found, key=lambda place: found[place].chance_below(BAR)):
        gain = found[place].at(1.0 - doubt / left)
        needed = _CALIBRATED_BY[0] if gain.low > _PLAIN else enough
        is_calibrated = spread is IN_TURNS or spread.trials >= needed
        decided[place] = _decision(before, candidates[place], gain, is_calibrated, spread.weight)
        left -= gain.low > BAR and left > 1
    return tuple(decided[place] for place in range(len(candidates)))


def settles_after(gain: MeasuredGain, freedom: float | None = None) -> int | None:
    """How many more trials of each arm would settle it; None where over eight. `freedom` is that of the spread."""
    bar, mid = math.log(BAR), math.log(gain.mid)
    half = mid - math.log(gain.low) if mid > bar else math.log(gain.high) - mid
    now, probability = min(gain.trials), (1.0 + gain.confidence) / 2.0
    for more in range(_MOST_MORE + 1):
        if freedom is not None:
            surer = student_quantile(probability, freedom) / student_quantile(probability, freedom + 2 * more)
        else:
            surer = 1.0
        if half * math.sqrt(now / (now + more)) / surer < abs(mid - bar):
            return more
    return None


def is_unsure(decision: Decision) -> bool:
    """Whether it may gain enough to stay, and may not."""
    return decision.gain is not None and decision.gain.high > BAR > decision.gain.low


def is_promising(decision: Decision) -> bool:
    """Whether a few more trials may turn it into a kept one."""
    return bool(decision.more_trials) and decision.gain is not None and decision.gain.mid > BAR


def _decision(
    before: Sequence[Trial], candidate: Candidate, gain: MeasuredGain, is_calibrated: bool, freedom: float
) -> Decision:
    arm, figure = candidate.arm, with_interval(gain)
    failed = [trial for trial in candidate.trials if trial.ending not in WELL]
    if failed and all(trial.ending in WELL for trial in before):
        counts = {"failed": len(failed), "trials": len(candidate.trials)}
        why = message("decision.failed", **counts, ending=describe_ending(failed[0]))
        return Decision(arm, "harmful", gain, why)
    if gain.high < 1.0:
        # To undo what only looked slower does no harm, so this needs no more trials.
        return Decision(arm, "harmful", gain, message("decision.slower", gain=figure))
    if not is_calibrated:
        # On a busy machine the same script may be half as fast the next time.
        return Decision(arm, "neutral", gain, message("decision.uncalibrated", gain=figure), 1)
    if gain.low > BAR:
        return Decision(arm, "kept", gain, figure)
    if gain.high <= BAR:
        return Decision(arm, "neutral", gain, message("decision.too_small", bar=percent(BAR), gain=figure))
    why = message("decision.undecided", bar=percent(BAR), gain=figure)
    return Decision(arm, "neutral", gain, why, settles_after(gain, freedom))


def _not_measured(before: Sequence[Trial], candidate: Candidate) -> Message | None:
    """Why there is nothing to compare, if so."""
    if not keep_measured(before):
        return message("decision.baseline_unmeasured", why=_first_ending(before))
    trials = keep_measured(candidate.trials)
    if not trials:
        return _first_ending(candidate.trials)
    for trial in trials:
        asked = [state for state in trial.states if state.id in trial.remedies]
        if asked and all(state.state != "applied" for state in asked):
            first = asked[0]
            if not first.why:
                return verbatim(first.state)
            return message("decision.not_applied", state=first.state, why=first.why)
    return None


def _first_ending(trials: Sequence[Trial]) -> Message:
    if not trials:
        return message("trial.none")
    failed = next((trial for trial in trials if trial.ending not in WELL), None)
    if failed is not None:
        return describe_ending(failed)
    return message("trial.too_few_steps", steps=len(trials[0].step_s), needed=FEWEST_STEPS)
