"""What losses are held against, on a training that is chaotic at its beginning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flatout.experiment.decide import coarsest_rounding
from flatout.experiment.request import Request
from flatout.records.trial import Trial
from flatout.words import english
from tests.unit.experiment.known_machine import STEP_S, Machine, fixed, found, states

_LAST_BITS = 1e-7
_SEEN = 1e-3


class Chaotic(Machine):
    """Losses part from each other by what they are rounded by, and that grows by a fifth at each step.

    Once they have parted they lie far from each other; `harms` is what the remedy does on top of that.
    """

    harms = 0.0

    def __call__(self, request: Request) -> Trial:
        trial = super().__call__(request)
        rounded = max(coarsest_rounding(request.remedies), request.perturbed, _LAST_BITS)
        parted = np.minimum(0.5, rounded * 1.2 ** np.arange(len(trial.losses))) * self._luck.uniform(-1, 1)
        harm = 1.0 + self.harms * ("precision.tf32" in request.remedies)
        losses = 0.5 * (1.0 + parted) * harm
        return replace(trial, losses=tuple(losses.tolist()), weights=str(parted[-1]))


def test_what_parts_sooner_because_it_rounds_more_is_no_harm() -> None:
    machine = Chaotic(lambda profile: STEP_S / (1.5 if profile else 1.0))

    fix = fixed(machine, found("precision.tf32"), allow=("numeric",), only=("precision.tf32",))

    assert states(fix) == {"precision.tf32=True": "kept"}
    within = fix.quality.envelope
    assert within is not None and within.verdict != "outside"
    perturbed = {one.perturbed for one in machine.asked} - {0.0}
    assert within.nudged_by in perturbed and "moved once by as much as it rounds" in english(within.sentence)


def test_what_no_rounding_of_that_size_does_is_harm() -> None:
    machine = Chaotic(lambda profile: STEP_S / (1.5 if profile else 1.0))
    machine.harms = 4.0

    fix = fixed(machine, found("precision.tf32"), allow=("numeric",), only=("precision.tf32",))

    assert states(fix) == {"precision.tf32=True": "failed"}


def test_what_rounds_as_float32_does_is_held_against_the_script_run_again() -> None:
    machine = Chaotic(lambda profile: STEP_S / (1.5 if profile else 1.0))

    fix = fixed(machine, found("optimizer.fused"), allow=("numeric",), only=("optimizer.fused",))

    assert states(fix) == {"optimizer.fused=True": "kept"}
    assert not any(one.perturbed > _SEEN for one in machine.asked)


@pytest.mark.parametrize(
    ("names", "by"),
    [
        (["gc.defer"], 0.0),
        (["graphs.model", "precision.tf32"], 2.0**-11),
        (["precision.tf32", "precision.bf16"], 2.0**-8),
    ],
)
def test_the_coarsest_rounding_counts(names: list[str], by: float) -> None:
    assert coarsest_rounding(names) == by


def test_a_script_whose_losses_do_not_part_needs_no_perturbed_trials() -> None:
    machine = Machine(lambda profile: STEP_S / (1.5 if profile else 1.0))

    fix = fixed(machine, found("precision.tf32"), allow=("numeric",), only=("precision.tf32",))

    assert states(fix) == {"precision.tf32=True": "kept"}
    assert not any(one.perturbed > 1e-5 for one in machine.asked)
