"""What losses are held against: how far they part when nothing is wrong.

The script run again is the first answer. It parts from itself by float32's last bits, and these take some dozen steps
to grow; what rounds a thousand times coarser parts at once, and in a training that is chaotic at its beginning looks
like harm. So losses that are outside of the first are held against trials whose weights were moved once, by as much as
the remedy rounds: what no rounding of that size would do by itself is the remedy's doing. Where such trials are there
already, they are asked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.experiment.bench import BARE, KEPT, LAST_BITS, LOSSES, Bench
from flatout.experiment.judge import draws_other_numbers, is_repeatable, with_enough_losses
from flatout.experiment.statistics.quality import FEWEST_CONTROLS, judge_envelope
from flatout.records.message import message
from flatout.records.proof import Envelope
from flatout.records.trial import Trial
from flatout.remedies.catalogue import traits_of

MOST_CONTROLS = 3


def coarsest_rounding(names: Iterable[str]) -> float:
    """The coarsest rounding among these remedies, as a share of a number; 0.0 where none is coarser than float32's."""
    return max((traits_of(name).rounding for name in names), default=0.0)


def make_control_trials(bench: Bench, profile: Mapping[str, Any], reserve_s: float) -> list[Trial]:
    """What losses under a profile differ by when nothing else is changed, or next to nothing.

    Three where there is time for as many, and for what is kept in reserve. Losses of a profile that changes no number
    are those of the script.
    """
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
