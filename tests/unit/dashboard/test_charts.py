"""Sums over time: nothing is lost when bins are made wider, and their number stays bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.dashboard.charts import Bins


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1, max_size=60))
def test_every_value_is_in_some_bin(pairs: list[tuple[float, int]]) -> None:
    bins = Bins(("n",), most=16)
    for t_s, value in pairs:
        bins.add(np.array([t_s]), {"n": np.array([float(value)])})

    assert bins.sums("n").sum() == pytest.approx(sum(value for _, value in pairs))
    assert bins.used <= 16


def test_a_value_lands_at_its_time() -> None:
    bins = Bins(("n", "weight"), most=8)

    bins.add(np.array([100.0, 100.5, 103.2]), {"n": np.array([1.0, 2.0, 4.0]), "weight": np.array([1.0, 1.0, 2.0])})

    assert bins.sums("n").tolist() == [3.0, 0.0, 0.0, 4.0]
    assert bins.times_s().tolist() == [0.5, 1.5, 2.5, 3.5]
    (ratio,) = bins.ratios(bins.places(["n"]), bins.places(["weight"]))
    assert ratio[[0, 3]].tolist() == [1.5, 2.0]
    assert np.isnan(ratio[1])


def test_what_is_not_measured_adds_nothing() -> None:
    bins = Bins(("n",))

    bins.add(np.array([np.nan]), {"n": np.array([1.0])})
    bins.add(np.array([1.0, 2.0]), {"n": np.array([np.nan, 1.0])})

    assert bins.sums("n").tolist() == [0.0, 1.0]


def test_only_what_has_changed_is_told_again() -> None:
    bins = Bins(("n",), most=4)
    one = {"n": np.array([1.0])}
    bins.add(np.array([0.0]), one)
    bins.settle()

    bins.add(np.array([1.5]), one)
    second = bins.changed_from
    bins.settle()
    bins.add(np.array([9.0]), one)

    assert second == 1
    assert (bins.changed_from, bins.width_s, bins.widened) == (0, 4.0, 2)


def test_a_clock_that_was_put_back_breaks_nothing() -> None:
    bins = Bins(("n",))
    bins.add(np.array([1000.0]), {"n": np.array([1.0])})

    bins.add(np.array([5.0]), {"n": np.array([1.0])})

    assert bins.sums("n").tolist() == [2.0]
