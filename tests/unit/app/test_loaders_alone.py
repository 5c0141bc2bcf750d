"""Figures of the loaders alone, from what ranks have recorded."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from flatout.app.loaders_alone import fed


def rank(*figures: dict[str, Any]) -> Any:
    return SimpleNamespace(recording=SimpleNamespace(values=lambda what: list(figures) if what == "feed" else []))


def figures(seconds: list[float], samples: list[float | None]) -> dict[str, Any]:
    return {"seconds": seconds, "samples": samples, "drained": 0, "epochs": 0}


def test_the_slowest_rank_counts_with_the_samples_of_all() -> None:
    quick, slow = figures([1.0, 1.0, 1.0], [4, 4, 4]), figures([3.0, 1.0], [2, 2])

    assert fed([rank(quick), rank(slow)], 0) == ((3.0, 1.0), (6.0, 6.0))


def test_a_rank_without_figures_leaves_nothing_to_say() -> None:
    assert fed([rank(figures([1.0], [4])), rank()], 0) == ((), ())
    assert fed([], 0) == ((), ())


def test_what_was_still_settling_is_left_out_but_never_more_than_half() -> None:
    found = figures([9.0, 9.0, 1.0, 1.0], [4, 4, 4, 4])

    assert fed([rank(found)], 2)[0] == fed([rank(found)], 60)[0] == (1.0, 1.0)


def test_samples_that_are_not_known_stay_unknown() -> None:
    assert math.isnan(fed([rank(figures([1.0], [None]))], 0)[1][0])
