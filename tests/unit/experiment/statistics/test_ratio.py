from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flatout.experiment.statistics.intervals import IN_TURNS, calibrate, compare_arms, measure_gain
from flatout.records.proof import MeasuredGain, Spread
from flatout.records.trial import Trial
from tests.unit.experiment.statistics.simulated import failed, made, trial, trials


def measured_gain(before: list[Trial], after: list[Trial], **more: object) -> MeasuredGain:
    found = measure_gain(before, after, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def half_width(found: MeasuredGain) -> float:
    return math.log(found.high / found.low) / 2


def test_twice_as_fast_is_twice_as_fast() -> None:
    rng = np.random.default_rng(1)

    found = measured_gain(trials(rng, 3), trials(rng, 3, gain=2.0))

    assert found.low < 2.0 < found.high
    assert found.mid == pytest.approx(2.0, rel=0.05)
    assert (found.unit, found.trials, found.confidence) == ("sample", (3, 3), 0.95)


def test_the_same_trials_give_the_same_figures_and_the_reverse_their_inverse() -> None:
    rng = np.random.default_rng(2)
    before, after = trials(rng, 2), trials(rng, 3, gain=1.1)

    found, again, back = (measured_gain(*pair) for pair in ((before, after), (before, after), (after, before)))

    assert found == again
    assert found.mid * back.mid == pytest.approx(1.0)
    assert found.low * back.high == pytest.approx(1.0, abs=0.01)


def test_a_gain_does_not_depend_on_the_unit_of_time() -> None:
    rng = np.random.default_rng(3)
    before, after = trials(rng, 2), trials(rng, 2)
    slower = [[replace(one, step_s=tuple(1024 * s for s in one.step_s)) for one in arm] for arm in (before, after)]

    found, scaled = measured_gain(before, after), measured_gain(*slower)

    assert scaled.mid == pytest.approx(found.mid)
    assert scaled.low == pytest.approx(found.low, abs=0.01)


def test_one_trial_an_arm_knows_little_however_even_its_steps() -> None:
    found = measured_gain([made([0.1] * 500)], [made([0.097] * 500)])

    assert found.low < 1.0 and found.high > 1.06


def test_arms_that_take_turns_in_one_process_share_its_luck() -> None:
    rng = np.random.default_rng(4)
    before, after = (trial(rng, process=0.0, drift=0.0, noise=0.02, gain=gain) for gain in (1.0, 1.05))

    apart, turns = measured_gain([before], [after]), measured_gain([before], [after], spread=IN_TURNS)

    assert half_width(turns) < half_width(apart) / 2
    assert turns.low > 1.01


def test_more_trials_and_less_doubt_make_it_narrower() -> None:
    rng = np.random.default_rng(5)
    before, after = trials(rng, 6), trials(rng, 6)
    spread = calibrate([before, after])

    few = measured_gain(before[:2], after[:2], spread=spread)
    many = measured_gain(before, after, spread=spread)
    sure = compare_arms(before, after, spread)

    assert half_width(many) < 0.75 * half_width(few)
    assert sure is not None and half_width(sure.at(0.999)) > 1.3 * half_width(many)


def test_an_evaluation_less_often_gains_in_total_and_not_in_typical_steps() -> None:
    rng = np.random.default_rng(6)
    before, after = trials(rng, 2, steps=240, long_share=0.0), trials(rng, 2, steps=240, long_share=0.0)
    evaluated = [
        replace(one, step_s=tuple(s + (0.4 if place % 40 == 20 else 0.0) for place, s in enumerate(one.step_s)))
        for one in before
    ]

    typical, total = measured_gain(evaluated, after), measured_gain(evaluated, after, by="total")

    assert typical.mid == pytest.approx(1.0, abs=0.04)
    assert total.mid == pytest.approx(1.2, rel=0.05)
    assert total.low > 1.05


def test_pauses_that_come_by_chance_leave_more_doubt_than_regular_ones() -> None:
    def paused(places: list[int]) -> Trial:
        return made([1.0 if place in places else 0.05 for place in range(200)])

    regular, chance = paused([20, 60, 100, 140, 180]), paused([3, 5, 90, 170, 171])
    plain = made([0.05] * 200)

    by_rule, by_chance = (measured_gain([one], [plain], by="total") for one in (regular, chance))

    assert by_rule.mid == pytest.approx(by_chance.mid)
    assert half_width(by_chance) > 1.3 * half_width(by_rule)


def test_without_a_measured_trial_there_is_no_gain() -> None:
    fine = made([0.1] * 50)

    assert measure_gain([fine], [failed("crashed")]) is None
    assert measure_gain([], [fine]) is None


def test_the_spread_is_what_processes_differ_by() -> None:
    rng = np.random.default_rng(7)

    quiet = calibrate([trials(rng, 10, process=0.002, noise=0.01, drift=0.0)])
    loud = calibrate([trials(rng, 10, process=0.05, noise=0.01, drift=0.0)])
    unknown = calibrate([trials(rng, 1)])

    assert quiet.typical < 0.007
    assert 0.03 < loud.typical < 0.07
    assert (unknown.factor, unknown.trials) == (1.0, 0)


def test_a_spread_without_bounds_gives_an_interval_with_some() -> None:
    """Processes that differ by orders of magnitude tell nothing; that is said, not raised."""
    wild = Spread(expected=0.01, factor=1e9, weight=1.0, typical=300.0, trials=2)

    rng = np.random.default_rng(9)
    found = measure_gain(trials(rng, 1), trials(rng, 1), wild)

    assert found is not None
    assert found.low < 1e-6 and found.high > 1e6
