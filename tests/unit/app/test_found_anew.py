"""A trial that begins with workers found before, and finds others."""

from __future__ import annotations

import pytest

from flatout.app.trials import _found_anew
from flatout.records.report import RemedyState


@pytest.mark.parametrize(
    ("told_at", "counts_from"),
    [
        (None, 0),
        (0, 0),  # what was found was right
        (20, 25),  # what came before it is left out
        (60, 0),  # as another loader is met, at an evaluation: too little would be left
    ],
)
def test_steps_with_other_workers_do_not_count(told_at: int | None, counts_from: int) -> None:
    states = [
        RemedyState("cudnn.benchmark", "numeric", True, "applied", step=40),
        RemedyState("loader.workers", "lossless", "auto", "applied", step=told_at),
    ]

    assert _found_anew(states, warm_up=10, steps=70) == counts_from
