"""How many workers a rank may have."""

from __future__ import annotations

import os

import pytest

from flatout.feed.machine import processors, workers_allowed


@pytest.mark.parametrize(
    ("allowed", "ranks", "workers"), [(16.0, None, 15), (16.0, "4", 3), (2.0, None, 1), (1.0, "8", 1), (2.5, "", 1)]
)
def test_one_processor_is_left_for_the_training_of_each_rank(allowed: float, ranks: str | None, workers: int) -> None:
    environ = {} if ranks is None else {"LOCAL_WORLD_SIZE": ranks}

    assert workers_allowed(environ, allowed) == workers


def test_never_more_than_this_process_may_run_on() -> None:
    assert 0 < processors() <= len(os.sched_getaffinity(0))
