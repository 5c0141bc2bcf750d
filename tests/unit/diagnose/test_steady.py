from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.ranks import warmup_length


def steps(*parts: tuple[int, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.full(count, seconds) for count, seconds in parts])


@pytest.mark.parametrize(
    ("walls", "expected"),
    [
        (steps((3, 9.0)), 0),
        (steps((1, 9.0), (9, 1.0)), 1),
        (steps((100, 1.0)), 0),
        (steps((10, 1.6), (190, 1.0)), 8),
        (steps((3, 30.0), (97, 1.0)), 3),
        # Fast at first, while the loader's queue is full.
        (steps((10, 0.1), (190, 1.0)), 8),
        # A slower first half is no warm-up: a cold cache, a longer sequence.
        (steps((50, 1.6), (50, 1.0)), 0),
        # Every tenth step evaluates.
        (np.tile(steps((9, 1.0), (1, 20.0)), 10), 0),
    ],
)
def test_warm_up_is_the_unsettled_beginning(walls: np.ndarray, expected: int) -> None:  # type: ignore[type-arg]
    assert warmup_length(walls) == expected


@given(st.lists(st.floats(0.0, 1e3), max_size=60))
def test_at_most_a_fifth_is_left_out(walls: list[float]) -> None:
    assert 0 <= warmup_length(np.array(walls)) <= max(1, len(walls) // 5)
