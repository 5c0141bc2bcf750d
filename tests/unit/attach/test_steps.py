"""What watching has cost is told once, however the steps are read."""

from __future__ import annotations

import pytest

from flatout.attach.steps import UnreportedCost


def test_readings_of_as_many_steps_tell_their_rate() -> None:
    owed = UnreportedCost()

    told = 0.0
    for _ in range(10):
        owed.by_steps(50)
        told += sum(owed.pay(2e-6, 1) for _ in range(50))

    assert told == pytest.approx(10 * 50 * 2e-6)


def test_what_one_step_cost_is_not_told_of_all_that_follow() -> None:
    owed = UnreportedCost()

    owed.by_steps(1)
    told = owed.pay(3e-3, 34) + owed.pay(3e-3, 1)

    assert told == pytest.approx(3e-3)


def test_what_is_left_over_is_told_later() -> None:
    owed = UnreportedCost()

    owed.by_steps(40)
    told = owed.pay(1e-5, 1)
    owed.by_steps(1)
    told += owed.pay(2e-4, 40)

    assert told == pytest.approx(40 * 1e-5 + 2e-4)


def test_a_step_that_goes_on_costs_nothing_more() -> None:
    owed = UnreportedCost()

    owed.by_steps(10)

    assert owed.pay(1e-5, 0) == 0.0
