from __future__ import annotations

import math

import numpy as np
import pytest

from flatout.experiment.statistics.quality import judge_envelope
from flatout.experiment.statistics.rates import Floats
from flatout.records.proof import Envelope
from flatout.records.trial import Trial
from flatout.words import english


def kept(losses: list[float | None] | Floats) -> Trial:
    return Trial("as it is", {}, "stopped", step_s=(0.1,), losses=tuple(losses))


class Training:
    """Trials of one script: the same batches for all, and paths that part by `size` of the loss."""

    def __init__(self, seed: int, steps: int = 100, size: float = 0.02, kind: str = "noise", batches: float = 0.1):
        self.rng = np.random.default_rng(seed)
        self.steps = np.arange(steps)
        self.size, self.kind = size, kind
        self.loss = (2.0 * np.exp(-self.steps / 60) + 0.5) * np.exp(self.rng.normal(0.0, batches, steps))

    def apart(self) -> Floats:
        count = len(self.steps)
        noise = self.rng.normal(0.0, self.size, count)
        if self.kind == "growing":
            return noise * np.minimum(1.0, 1e-7 * np.exp(self.steps / 3))
        if self.kind == "wandering":
            return noise / 2 + np.cumsum(self.rng.normal(0.0, self.size / math.sqrt(count), count))
        if self.kind == "lasting":
            return noise / 4 + self.rng.normal(0.0, self.size) * np.minimum(1.0, self.steps / 20)
        return noise

    def run(self, drift: float = 0.0) -> Trial:
        late = self.steps >= len(self.steps) / 2
        return kept(self.loss * np.exp(self.apart()) * (1.0 + drift * late))

    def judged(self, controls: int = 3, drift: float = 0.0) -> Envelope:
        return judge_envelope([self.run() for _ in range(controls)], [self.run(drift)])


def outside_share(runs: int, controls: int, kind: str, drift: float = 0.0, steps: int = 100) -> float:
    found = [Training(seed, steps, kind=kind).judged(controls, drift) for seed in range(runs)]
    return sum(one.verdict == "outside" for one in found) / runs


@pytest.mark.parametrize("kind", ["noise", "growing", "wandering", "lasting"])
@pytest.mark.parametrize("controls", [3, 4])
def test_what_varies_like_the_script_itself_raises_no_alarm(kind: str, controls: int) -> None:
    assert outside_share(300, controls, kind) <= 0.05


@pytest.mark.parametrize("kind", ["noise", "growing"])
@pytest.mark.parametrize("drift", [0.05, -0.05])
def test_a_loss_five_percent_off_in_the_last_half_is_caught(kind: str, drift: float) -> None:
    assert outside_share(100, 3, kind, drift) >= 0.95


@pytest.mark.parametrize("kind", ["noise", "wandering", "lasting"])
def test_a_drift_well_over_the_least_that_could_be_seen_is_seen(kind: str) -> None:
    seen = 0
    for seed in range(60):
        least = Training(seed, kind=kind).judged().least_seen
        assert least is not None
        seen += Training(seed, kind=kind).judged(drift=2 * least).verdict == "outside"

    assert seen / 60 >= 0.9


def test_inside_says_what_could_not_have_been_seen() -> None:
    found = Training(1).judged()

    assert (found.verdict, found.steps, found.yardsticks) == ("inside", 100, 3)
    assert found.least_seen is not None and 0.005 <= found.least_seen < 0.05
    assert f"a drift of less than {100 * found.least_seen:.1f}% could not have been seen" in english(found.sentence)


def test_outside_names_the_first_window_and_by_how_much() -> None:
    found = Training(1).judged(drift=0.3)

    assert found.verdict == "outside"
    assert found.window is not None and found.window[0] in range(41, 62)
    assert found.farthest == pytest.approx(0.3, abs=0.05)


def test_a_script_that_varies_too_much_verifies_nothing() -> None:
    found = Training(2, size=0.5).judged()

    assert found.verdict == "not verified"
    assert english(found.sentence).startswith("the script varies too much: a drift of less than")


def test_a_script_that_repeats_itself_needs_a_perturbed_control() -> None:
    training = Training(1, size=0.0)
    other = Training(1, size=0.001).run()

    bare = judge_envelope([training.run(), training.run()], [other])
    perturbed = judge_envelope([training.run(), training.run(), Training(1, size=1e-6).run()], [other])
    same = judge_envelope([training.run(), training.run()], [training.run()])
    drifted = judge_envelope([training.run(), Training(1, size=1e-6).run()], [training.run(drift=0.02)])

    assert bare.verdict == "not verified" and "repeats itself to the bit" in english(bare.sentence)
    assert (perturbed.verdict, perturbed.least_seen) == ("inside", 0.005)
    assert (same.verdict, english(same.sentence)) == ("inside", "the loss is the same")
    assert drifted.verdict == "outside"


def test_a_difference_that_the_luck_of_the_batches_hides_is_rounding() -> None:
    # A loss that is nearly learnt jumps by its own size from batch to batch.
    even, jumpy = Training(1, size=1e-6), Training(1, size=1e-6, batches=0.8)

    assert even.judged(drift=0.02).verdict == "outside"
    assert jumpy.judged(drift=0.02).verdict == "inside"
    assert jumpy.judged(drift=0.2).verdict == "outside"


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_outside(broken: float) -> None:
    training = Training(1)
    losses = list(training.run().losses)
    losses[6] = broken

    found = judge_envelope([training.run(), training.run()], [kept(losses)])
    by_itself = judge_envelope([training.run(), kept(losses)], [kept(losses)])

    assert (found.verdict, found.window) == ("outside", (7, 7))
    assert by_itself.verdict == "not verified"


def test_too_little_to_go_by_is_not_verified() -> None:
    training, short = Training(1), Training(1, steps=30)
    gaps: list[float | None] = [None if step % 3 == 0 else loss for step, loss in enumerate(training.run().losses)]

    once = judge_envelope([training.run()], [training.run()])
    few = short.judged()
    unread = judge_envelope([training.run(), training.run()], [kept(gaps)])
    silent = judge_envelope([training.run(), training.run()], [kept([])])

    assert [one.verdict for one in (once, few, unread, silent)] == ["not verified"] * 4
    assert english(once.sentence).startswith("the script was not run twice")
    assert english(few.sentence).startswith("30 steps with a loss in every trial are too few")
    assert english(unread.sentence).startswith("0 steps")


def test_a_loss_that_passes_through_zero_is_judged_by_its_usual_size() -> None:
    rng = np.random.default_rng(1)
    falling = np.linspace(1.0, -1.0, 100)

    def judged(drift: float) -> Envelope:
        return judge_envelope([kept(falling + rng.normal(0, 0.02, 100)) for _ in range(3)], [kept(falling + drift)])

    assert [judged(0.0).verdict for _ in range(20)].count("outside") <= 1
    assert judged(0.1).verdict == "outside"


def test_trials_of_different_length_are_compared_where_all_have_steps() -> None:
    long, short = Training(1, steps=120), Training(1, steps=80)
    losses = long.loss[:80]
    short.loss = losses

    found = judge_envelope([long.run(), long.run(), short.run()], [long.run()])

    assert (found.verdict, found.steps) == ("inside", 80)
