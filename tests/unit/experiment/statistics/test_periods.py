"""Steps that have a period, as in short epochs whose first batch is waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from flatout.experiment.statistics.intervals import measure_gain
from flatout.experiment.statistics.rates import Floats, count_alike, find_period, rate, without_rare
from flatout.records.proof import By, MeasuredGain
from flatout.records.trial import Trial
from tests.unit.experiment.statistics.simulated import made, trial, waiting

BAR = 1.01
# Of a real search on two cores, in milliseconds and without pauses: an epoch has eight steps, and workers begin anew in
# each. Some waits are four times the median and some are not; some are shared by two steps.
WORKERS = (
    [113, 60, 30, 49, 41, 15, 9, 40, 85, 92, 47, 16, 31, 9, 10, 41, 189, 37, 29, 31, 11, 10, 10, 63, 207, 31, 30, 23,
     10, 10, 10, 53, 158, 49, 29, 25, 11, 9, 9, 63, 170, 56, 25, 10, 10, 10, 9, 62, 183, 27, 32, 10, 9, 10, 9, 64,
     157, 30, 32, 30, 25, 10, 9, 54, 158, 41, 45, 19, 10, 10, 10, 65, 114, 65, 55, 30, 24, 18, 10, 42, 175, 52, 31],
    [14, 9, 10, 9, 9, 49, 206, 31, 12, 9, 9, 9, 9, 62, 173, 52, 33, 10, 10, 10, 9, 40, 113, 133, 37, 10, 10, 10, 10,
     46, 195, 37, 10, 13, 9, 9, 9, 63, 151, 32, 37, 23, 17, 10, 9, 63, 121, 74, 51, 18, 10, 10, 9, 51, 109, 147, 32,
     28, 11, 10, 9, 61, 154, 30, 44, 26, 12, 9, 9, 64, 157, 34, 33, 24, 11, 10, 11, 46, 193, 41, 27, 9, 11, 10, 10],
)  # fmt: skip
# Two trials of one profile on a GPU: of twenty steps one waits for workers to start, a hair under the limits of what is
# an exception in the first, and a hair over them in the second.
ALIKE = (
    [60, 49, 45, 56, 53, 51, 53, 50, 53, 51, 54, 46, 45, 51, 42, 42, 42, 229, 33, 40, 41, 39, 41, 43, 50, 44, 47, 39,
     44, 39, 44, 44, 44, 43, 37, 37, 37, 255, 37, 39, 37, 45, 40, 40, 43, 38, 44, 37, 43, 39, 49, 33, 51, 40, 32, 33,
     30, 225, 45, 50, 40, 41, 38, 37, 50, 42, 45, 47, 38, 37, 36, 42, 34, 37, 28, 29, 32, 247, 34, 42, 53, 57],
    [40, 48, 39, 46, 49, 58, 52, 49, 50, 43, 53, 40, 37, 28, 28, 29, 219, 44, 43, 48, 50, 53, 56, 54, 51, 50, 52, 48,
     46, 44, 43, 44, 48, 41, 38, 32, 254, 37, 44, 49, 49, 43, 50, 58, 54, 53, 53, 48, 51, 48, 63, 54, 55, 45, 41, 42,
     300, 45, 48, 49, 54, 50, 52, 53, 52, 55, 53, 52, 53, 51, 52, 52, 54, 45, 49, 49, 278, 45],
)  # fmt: skip
EPOCH = [1.0, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.4]
MEAN = sum(EPOCH) / len(EPOCH)


def per_step(seconds: Sequence[float], by: By = "blocks") -> float:
    return rate(made(list(seconds)), "step", by).seconds


def measured_gain(before: list[Trial], after: list[Trial], by: By = "blocks") -> MeasuredGain:
    found = measure_gain(before, after, by=by)
    assert found is not None
    return found


def half_width(found: MeasuredGain) -> float:
    return math.log(found.high / found.low) / 2


def period_steps(seconds: Floats | Sequence[float]) -> int | None:
    period = find_period(np.asarray(seconds, dtype=np.float64))
    return period.steps if period else None


@pytest.mark.parametrize("seconds", WORKERS)
def test_the_period_of_real_epochs_is_found(seconds: list[int]) -> None:
    assert period_steps(seconds) == 8


def test_what_is_regular_in_real_epochs_is_no_doubt() -> None:
    rng = np.random.default_rng(1)
    before = [trial(rng, steps=80, step_s=0.06, noise=0.03, long_share=0.0) for _ in range(2)]
    after = [made([ms / 1e3 for ms in series]) for series in WORKERS]

    typical, total = measured_gain(before, after), measured_gain(before, after, "total")

    # With waits drawn as if they came by chance both were 0.29, and no gain was sure.
    assert half_width(typical) < 0.06 and half_width(total) < 0.11


def test_what_is_regular_in_one_trial_is_so_in_all_that_have_the_same_period() -> None:
    both = [made([ms / 1e3 for ms in series]) for series in ALIKE]
    even = trial(np.random.default_rng(3), long_share=0.0)

    *counted, plain = count_alike([*both, even], [*both, even])

    ratio = math.log(rate(both[1]).seconds / rate(both[0]).seconds)
    assert ratio > 0.35, "else these two are no example"
    # As they differ in all their steps, and in their waits.
    assert math.log(rate(counted[1]).seconds / rate(counted[0]).seconds) == pytest.approx(0.14, abs=0.05)
    assert plain == even and count_alike([both[0]], [both[0], even]) == [both[0]]


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("steps", [40, 61, 83, 200])
def test_a_wait_too_many_or_too_few_does_not_move_the_rate(first: int, steps: int) -> None:
    assert per_step((EPOCH * 27)[first : first + steps]) == pytest.approx(MEAN)


@pytest.mark.parametrize("steps", [40, 61, 83])
def test_in_a_total_it_is_a_doubt(steps: int) -> None:
    """The total has all the time there was, so that of two trials may hold unequal shares of an epoch."""
    one, other = (made((EPOCH * 12)[first : first + steps]) for first in (0, 1))

    found = measured_gain([one], [other], "total")

    assert found.low < 1.0 < found.high


def test_without_a_period_there_is_none() -> None:
    rng = np.random.default_rng(2)

    assert period_steps([0.1] * 80) is None
    assert period_steps([0.1, 0.11] * 40) is None  # blocks even that out
    assert period_steps(EPOCH * 3) is None  # seen too few times
    assert period_steps(np.exp(np.linspace(0.0, 2.0, 80))) is None
    for _ in range(50):
        assert period_steps(trial(rng, noise=0.5, drift=0.2).step_s) is None


def test_few_waits_that_come_by_chance_are_no_period() -> None:
    rng = np.random.default_rng(3)
    found = 0

    for _ in range(200):
        seconds = rng.uniform(0.04, 0.06, 100)
        seconds[rng.choice(100, int(rng.integers(1, 9)), replace=False)] = 0.6
        found += period_steps(seconds) is not None

    assert found <= 10


def test_one_stall_does_not_hide_the_period_and_is_no_part_of_it() -> None:
    seconds = EPOCH * 10
    seconds[43] = 60.0

    assert period_steps(seconds) == 8
    assert per_step(seconds) == pytest.approx(MEAN)


def test_of_waits_some_longer_than_others_none_is_an_exception() -> None:
    # Two are more than four ordinary steps, the others somewhat less: they are all waits of the same kind.
    seconds = np.array(([0.09] + [0.03] * 7) * 9)
    seconds[[16, 48]] = 0.16

    assert without_rare(seconds) == pytest.approx(seconds)


def test_a_wait_shared_by_two_steps_is_no_exception() -> None:
    seconds = np.array(([0.2] + [0.02] * 7) * 12)
    seconds[40:42] = 0.11

    assert without_rare(seconds) == pytest.approx(seconds)


def test_rare_and_slight_evaluations_are_exceptions_with_their_period_and_so_is_a_stall() -> None:
    seconds = np.full(240, 0.05)
    seconds[20::40] = 0.45
    seconds[100] = 0.4

    assert without_rare(seconds) == pytest.approx(np.full(240, 0.05))


def test_a_period_in_which_some_steps_take_no_samples() -> None:
    uneven = made(EPOCH * 10, samples=(64.0, 64.0, 64.0, 0.0) * 20)
    empty = made(EPOCH * 10, samples=(0.0,) * 16 + (64.0,) * 64)

    assert rate(uneven).seconds == pytest.approx(MEAN / 48)
    for one in (uneven, empty):
        found = measured_gain([one], [one])
        assert 0.5 < found.low < 1.0 < found.high < 2.0


def false_share(by: By, arms: tuple[int, int], runs: int, **more: Any) -> float:
    rng = np.random.default_rng(4)
    kept = 0
    for _ in range(runs):
        before, after = ([waiting(rng, **more) for _ in range(count)] for count in arms)
        kept += measured_gain(before, after, by).low > BAR
    return kept / runs


@pytest.mark.parametrize(
    "more",
    [
        {"process": 0.03},
        pytest.param({"jitter": 1, "wait_noise": 0.8}, marks=pytest.mark.variant),
        pytest.param({"drift": 0.1, "noise": 0.3}, marks=pytest.mark.variant),
        {"by_chance": True},
    ],
    ids=str,
)
def test_a_against_a_is_kept_in_at_most_one_of_twenty(more: dict[str, Any]) -> None:
    assert false_share("blocks", (2, 2), 200, **more) <= 0.05


@pytest.mark.parametrize("more", [{"steps": 44}, {"period": 20, "wait": 15.0}], ids=str)
def test_so_it_is_where_periods_are_few(more: dict[str, Any]) -> None:
    assert false_share("blocks", (3, 1), 80, **more) <= 0.05
    assert false_share("total", (2, 2), 80, **more) <= 0.05


def test_ten_percent_are_found_whether_waits_are_four_times_the_median_or_not() -> None:
    rng = np.random.default_rng(5)
    runs, kept = 40, 0

    for _ in range(runs):
        before, after = ([waiting(rng, wait=3.0, wait_noise=0.1, gain=gain) for _ in range(3)] for gain in (1.0, 1.1))
        kept += measured_gain(before, after).low > BAR

    assert kept / runs >= 0.9


def mean_half_width(rng: np.random.Generator, **more: Any) -> float:
    ones = [waiting(rng, wait_noise=0.1, **more) for _ in range(20)]
    return float(np.mean([half_width(measured_gain([one], [other])) for one, other in pairwise(ones)]))


def test_the_surer_the_period_the_less_the_doubt() -> None:
    rng = np.random.default_rng(6)

    regular, jittered, chance = (
        mean_half_width(rng, **more) for more in ({"jitter": 0}, {"jitter": 3}, {"by_chance": True})
    )

    assert regular < 0.3 * chance
    assert regular < jittered
