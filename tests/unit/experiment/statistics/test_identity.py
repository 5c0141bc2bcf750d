from __future__ import annotations

import math
import struct

import pytest

from flatout.experiment.statistics.quality import judge_identity
from flatout.records.trial import Trial
from flatout.words import english

LOSSES = (2.5, 2.25, 2.0, 1.75)


def kept(*losses: float | None, weights: str | None = "w", steps: int | None = None) -> Trial:
    return Trial("as it is", {}, "stopped", step_s=(0.1,), losses=losses, weights=weights, steps=steps)


def test_the_same_losses_and_weights_are_identical() -> None:
    found = judge_identity([kept(*LOSSES)], kept(*LOSSES))

    assert (found.verdict, found.steps, found.weights_equal) == ("identical", 4, True)
    assert english(found.sentence) == "losses are bit-identical over 4 steps, and the trained weights too"


def test_only_the_common_steps_count_and_weights_only_at_the_same_step() -> None:
    found = judge_identity([kept(*LOSSES, weights="early")], kept(*LOSSES, 1.5, weights="late"))
    counted = judge_identity([kept(*LOSSES, weights="a", steps=4)], kept(*LOSSES, weights="b", steps=2))

    assert (found.verdict, found.steps, found.weights_equal) == ("identical", 4, None)
    assert counted.weights_equal is None


def test_the_first_differing_step_is_named_with_both_values() -> None:
    other = (2.5, 2.25, math.nextafter(2.0, 3.0), 9.0)

    found = judge_identity([kept(*LOSSES), kept(*LOSSES)], kept(*other))

    assert (found.verdict, found.steps, found.first_step) == ("differs", 2, 3)
    assert found.values == ((2.0).hex(), other[2].hex())
    assert english(found.sentence) == "the loss first differs at step 3: 2.0 as it is, 2.0000000000000004 with it"


def test_equal_losses_with_other_weights_differ() -> None:
    found = judge_identity([kept(*LOSSES), kept(*LOSSES)], kept(*LOSSES, weights="other"))

    assert (found.verdict, found.first_step, found.weights_equal) == ("differs", None, False)


def test_that_the_script_was_not_tried_against_itself_is_said() -> None:
    found = judge_identity([kept(*LOSSES)], kept(9.0))

    assert english(found.sentence).endswith("whether the script repeats itself was not tried")


def test_a_script_that_does_not_repeat_itself_cannot_be_held_to_it() -> None:
    found = judge_identity([kept(*LOSSES), kept(2.5, 2.25, 2.0, 1.8)], kept(2.5, 2.251))

    assert (found.verdict, found.first_step) == ("not comparable", 2)
    assert "differs from step 4 when simply run again" in english(found.sentence)
    assert "with the remedy it differs from step 2" in english(found.sentence)


def _drifting(first: float, factor: float = 10.0) -> tuple[float, ...]:
    """Losses that part by a rounding error, which grows."""
    return tuple(loss * (1 + first * factor**step) for step, loss in enumerate((2.5, 2.25, 2.0, 1.75, 1.5, 1.25)))


def test_a_script_that_parts_from_itself_slowly_is_as_close_to_the_remedy() -> None:
    bare = [kept(*_drifting(1e-7)), kept(*_drifting(-1e-7)), kept(*_drifting(2e-7))]

    found = judge_identity(bare, kept(*_drifting(-3e-7)))

    assert (found.verdict, found.steps) == ("alike", 4)
    assert "over the first 4 steps" in english(found.sentence) and "(within 3e-04 of the loss)" in english(
        found.sentence
    )
    assert "it differs from step 1 when simply run again" in english(found.sentence)


def test_a_script_that_parts_from_itself_late_is_the_same_until_then() -> None:
    first = (2.5, 2.25, 2.0)

    found = judge_identity([kept(*first, 1.75), kept(*first, 1.8)], kept(*first, 1.9))

    assert found.verdict == "alike"
    assert "over the first 3 steps" in english(found.sentence) and "(to the bit)" in english(found.sentence)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_what_is_far_away_at_once_is_no_rounding(step: int) -> None:
    """Another batch, or another order, in a script that does not repeat itself to the bit."""
    other = list(_drifting(1e-8))
    other[step] *= 1.02

    found = judge_identity([kept(*_drifting(1e-7)), kept(*_drifting(-1e-7))], kept(*other))

    assert found.verdict == "differs"
    assert f"the loss at step {step + 1} is" in english(found.sentence) and "only by rounding there" in english(
        found.sentence
    )


def test_a_drift_that_is_larger_than_the_scripts_own_is_left_open() -> None:
    found = judge_identity([kept(*_drifting(1e-9)), kept(*_drifting(-1e-9))], kept(*_drifting(4e-6)))

    assert found.verdict == "not comparable"


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (math.nan, math.nan, True),
        (struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0], math.nan, False),
        (0.0, -0.0, False),
        (math.inf, math.inf, True),
    ],
)
def test_losses_are_compared_by_their_bits(left: float, right: float, same: bool) -> None:
    found = judge_identity([kept(1.0, left)], kept(1.0, right))

    assert (found.verdict == "identical") is same


def test_losses_that_could_not_be_read_prove_nothing() -> None:
    some = judge_identity([kept(2.5, None, 2.0)], kept(2.5, 2.25, None))
    none = judge_identity([kept(None, None)], kept(2.5, 2.25))
    empty = judge_identity([kept(*LOSSES)], kept())

    assert (some.verdict, some.steps) == ("identical", 1)
    assert (none.verdict, english(none.sentence)) == ("not comparable", "no loss could be read")
    assert (empty.verdict, english(empty.sentence)) == ("not comparable", "no loss of the trial with it was kept")


def test_the_longest_of_the_bare_runs_counts() -> None:
    same = judge_identity([kept(2.5), kept(*LOSSES)], kept(*LOSSES))
    other = judge_identity([kept(2.5), kept(*LOSSES)], kept(2.5, 9.0))

    assert (same.verdict, same.steps) == ("identical", 4)
    assert (other.verdict, other.first_step) == ("differs", 2)


def test_a_script_with_several_ways_to_go_may_go_one_of_them() -> None:
    found = judge_identity([kept(*LOSSES), kept(2.5, 9.0, 8.0, 7.0)], kept(*LOSSES))

    assert (found.verdict, found.steps) == ("identical", 4)
