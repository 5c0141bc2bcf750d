from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flatout.experiment.statistics.decision import Candidate, is_promising, judge_candidates, settles_after
from flatout.experiment.statistics.intervals import IN_TURNS, calibrate
from flatout.records.message import verbatim
from flatout.records.proof import Decision, MeasuredGain, Spread
from flatout.records.report import RemedyState
from flatout.records.trial import Trial
from flatout.words import english
from tests.unit.experiment.statistics.simulated import failed, made, trials


def decided(before: list[Trial], after: list[Trial]) -> Decision:
    (decision,) = judge_candidates(before, [Candidate("remedy", after)], calibrate([before, after]))
    return decision


def measured_gain(low: float, mid: float, high: float, trials: int = 2) -> MeasuredGain:
    return MeasuredGain(low, mid, high, 0.95, "sample", "blocks", (trials, trials))


@pytest.mark.parametrize(
    ("gain", "judgement", "word"),
    [(1.3, "kept", "+3"), (0.7, "harmful", "slower: -"), (1.0, "neutral", "not surely over +1.0%")],
)
def test_a_remedy_is_kept_neutral_or_harmful(gain: float, judgement: str, word: str) -> None:
    rng = np.random.default_rng(1)

    decision = decided(trials(rng, 3), trials(rng, 3, gain=gain))

    assert decision.judgement == judgement
    assert english(decision.why).startswith(word)
    assert decision.gain is not None and decision.gain.low < gain < decision.gain.high


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ([made([0.1] * 50)], [failed("out of memory", "tried to allocate 2 GiB")], "out of memory: tried to allocate"),
        ([made([0.1] * 50)], [], "no trial was made"),
        ([made([0.1] * 50)], [made([0.1] * 3)], "3 steps after warm-up are too few, 4 are needed"),
        ([failed("hung")], [made([0.1] * 50)], "the script as it is could not be measured: hung"),
    ],
)
def test_what_was_not_measured_says_why(before: list[Trial], after: list[Trial], why: str) -> None:
    decision = decided(before, after)

    assert decision.judgement == "not measured"
    assert decision.gain is None
    assert english(decision.why).startswith(why)


def test_a_remedy_that_was_refused_was_not_measured() -> None:
    state = RemedyState("loader.workers", "lossless", 8, "refused", verbatim("the dataset cannot be pickled"))
    after = made([0.05] * 50, states=(state,))

    decision = decided([made([0.1] * 50)], [replace(after, remedies={"loader.workers": 8})])

    assert english(decision.why) == "refused: the dataset cannot be pickled"


def test_a_remedy_that_crashes_now_and_then_is_harmful_however_fast() -> None:
    rng = np.random.default_rng(3)
    fast = [*trials(rng, 3, gain=2.0), failed("crashed", "Segmentation fault")]

    decision = decided(trials(rng, 3), fast)
    of_a_flaky_script = decided([*trials(rng, 3), failed("crashed")], fast)

    assert decision.judgement == "harmful"
    assert english(decision.why) == "1 of 4 trials failed: crashed: Segmentation fault"
    assert of_a_flaky_script.judgement == "kept"


def test_nothing_is_kept_before_something_was_run_again() -> None:
    rng = np.random.default_rng(5)
    before, after = trials(rng, 2), trials(rng, 1, gain=2.0)

    once, twice = decided(before[:1], after), decided(before, after)
    (in_turns,) = judge_candidates(before[:1], [Candidate("remedy", after)], IN_TURNS)

    assert (once.judgement, once.more_trials) == ("neutral", 1)
    assert english(once.why).endswith("but too little was run again to know what that is worth")
    assert is_promising(once)
    assert (twice.judgement, in_turns.judgement) == ("kept", "kept")


def test_several_chances_take_a_third_trial_unless_it_is_plain() -> None:
    rng = np.random.default_rng(6)
    before, some, plenty = (
        trials(rng, 3, gain=gain, noise=0.01, process=0.001, drift=0.0) for gain in (1.0, 1.12, 2.0)
    )
    spread = calibrate([before[:2]])

    def judgements(bare: list[Trial], given: Spread) -> list[str]:
        arms = [Candidate("some", some[:1]), Candidate("plenty", plenty[:1])]
        return [one.judgement for one in judge_candidates(bare, arms, given)]

    assert judgements(before[:2], spread) == ["neutral", "kept"]
    assert judgements(before, calibrate([before])) == ["kept", "kept"]
    assert judge_candidates(before[:2], [Candidate("some", some[:1])], spread)[0].judgement == "kept"
    assert judge_candidates(before[:2], [Candidate("some", some[:1])], spread, looks=2)[0].more_trials == 1


def test_arms_judged_together_and_again_are_held_to_more() -> None:
    rng = np.random.default_rng(4)
    before = trials(rng, 3)
    arms = [Candidate("big", trials(rng, 3, gain=1.5)), *(Candidate(f"{n}", trials(rng, 3)) for n in range(4))]

    spread = calibrate([before, *(arm.trials for arm in arms)])

    together, again = judge_candidates(before, arms, spread), judge_candidates(before, arms, spread, looks=2)

    assert [one.judgement for one in together] == ["kept"] + ["neutral"] * 4
    assert [round(one.gain.confidence, 4) for one in together if one.gain] == [0.99] + [0.9875] * 4
    assert [round(one.gain.confidence, 4) for one in again if one.gain] == [0.995] + [0.9938] * 4


@pytest.mark.parametrize(
    ("gain", "more"),
    [
        (measured_gain(1.005, 1.05, 1.10), 1),
        (measured_gain(0.99, 1.05, 1.11), 3),
        (measured_gain(0.95, 1.012, 1.08), None),
        (measured_gain(0.90, 0.97, 1.045), 5),
    ],
)
def test_how_many_more_trials_would_settle_it(gain: MeasuredGain, more: int | None) -> None:
    assert settles_after(gain) == more


def test_more_trials_go_where_they_may_help() -> None:
    far = Decision("far", "neutral", measured_gain(0.99, 1.05, 1.11), verbatim(""), 3)
    near = Decision("near", "neutral", measured_gain(1.005, 1.05, 1.10), verbatim(""), 1)
    hopeless = Decision("hopeless", "neutral", measured_gain(0.9, 0.97, 1.045), verbatim(""), 3)
    kept = Decision("kept", "kept", measured_gain(1.2, 1.3, 1.4), verbatim(""))

    assert [is_promising(one) for one in (far, kept, hopeless, near)] == [True, False, False, True]
