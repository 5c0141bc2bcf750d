"""Steps that are quick because batches lay ready do not count, where enough are left without them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flatout.app.stock import used_up
from flatout.diagnose.ranks import Steps
from flatout.records.report import PHASES


def steps(ready: list[float], each: int = 1) -> Steps:
    rows = len(ready)
    one = np.ones(rows)
    return Steps(
        np.arange(rows),
        np.arange(rows),
        0.1 * one,
        each * one,
        one,
        np.zeros((rows, len(PHASES)), np.float32),
        0 * one,
        np.array(ready, float),
    )


FALLING = [float(max(0, 14 - step)) for step in range(40)]


@pytest.mark.parametrize(
    ("ready", "first", "expected"),
    [
        (FALLING, 4, 13),  # from there on one is ready at most
        (FALLING[:20], 0, 10),  # no more than half
        (FALLING[4:], 20, 20),
        ([10.0, 9.0, 10.0, 8.0] * 10, 4, 4),  # the loader keeps up
        ([3.0] * 17 + [2.0, 1.0, 0.0] + [3.0] * 17 + [2.0, 1.0, 0.0], 3, 3),  # epochs come to their end
        ([0.0, 2.0, 4.0] * 10, 0, 0),
        ([8.0, 0.0, 0.0, 0.0], 0, 0),  # too few to give some away
        ([math.nan, *FALLING], 0, 0),
        ([], 0, 0),
    ],
)
def test_what_lay_ready_goes_first(ready: list[float], first: int, expected: int) -> None:
    assert used_up(steps(ready), first) == expected


def test_records_that_hold_several_steps_count_as_so_many() -> None:
    assert used_up(steps(FALLING, each=2), 8) == 26
