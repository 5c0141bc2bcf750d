from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.experiment.statistics.rates import common_unit, keep_measured, rate
from tests.unit.experiment.statistics.simulated import failed, made


def test_batches_of_different_size_compare_by_samples() -> None:
    small, large = made([0.1] * 40, batch=16), made([0.2] * 40, batch=32)

    assert rate(small).seconds == pytest.approx(rate(large).seconds) == pytest.approx(0.1 / 16)
    assert rate(large).per_s == pytest.approx(160)


@pytest.mark.parametrize("samples", [(), (float("nan"),) * 40, (-1.0,) * 40, (32.0,) * 39, (0.0,) * 40])
def test_steps_have_to_do_where_samples_are_not_known(samples: tuple[float, ...]) -> None:
    trial = made([0.1] * 40, samples=samples)

    assert rate(trial).unit == "step"
    assert rate(trial).seconds == pytest.approx(0.1)
    assert common_unit([made([0.1] * 40), trial]) == "step"


def test_a_bad_stretch_and_a_rare_long_step_do_not_move_the_typical_rate() -> None:
    seconds = [0.1] * 100
    seconds[30:50] = [0.15] * 20
    seconds[70] = 9.0

    assert rate(made(seconds)).seconds * 32 == pytest.approx(0.1)


def test_the_total_has_all_the_time_there_was() -> None:
    seconds = [0.1] * 99 + [10.0]

    assert rate(made(seconds), by="total").seconds * 32 == pytest.approx(sum(seconds) / 100)


@pytest.mark.parametrize("period", [3, 4, 7, 8, 12, 24])
def test_bursts_of_a_loader_that_cannot_keep_up_are_no_exception(period: int) -> None:
    # `period` workers: the first batch of each round is waited for, the others are there already.
    seconds = ([1.0] + [0.05] * (period - 1)) * (240 // period)

    assert rate(made(seconds)).seconds * 32 == pytest.approx(sum(seconds) / len(seconds), rel=0.02)


def test_a_trial_that_failed_or_hardly_began_has_no_rate() -> None:
    fine = made([0.1] * 4)

    assert keep_measured([failed("crashed"), made([0.1] * 3), made([0.0] * 50), fine]) == [fine]


@given(st.lists(st.floats(1e-4, 1e3), min_size=4, max_size=700))
def test_a_rate_lies_between_the_fastest_and_the_slowest_step(seconds: list[float]) -> None:
    trial = made(seconds, batch=1.0)

    assert min(seconds) * (1 - 1e-9) <= rate(trial).seconds <= max(seconds) * (1 + 1e-9)
    assert rate(trial, by="total").seconds == pytest.approx(np.mean(seconds))
