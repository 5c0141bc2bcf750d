"""Turns within one process: an evaluation that falls into one is no part of its steps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flatout.diagnose.ranks import Steps
from flatout.experiment.trial_reader import _found_anew, first_steady_step, read_loaders_alone, training_seconds
from flatout.records.report import PHASES, RemedyState

_TIMED = 8


def test_steps_with_a_pause_and_what_follows_are_taken_out_of_the_turn_they_fell_into() -> None:
    times, pauses = np.full(60, 0.1), np.zeros(60)
    times[24], pauses[24] = 4.1, 3.5  # not all of the pause was told
    times[25] = 0.5  # its loader begins anew

    whole = [times[first : first + _TIMED].mean() for first in (20, 40)]

    assert training_seconds(whole, [20, 40], _TIMED, times, pauses) == pytest.approx([0.1, 0.1])


def test_long_steps_without_a_pause_stay() -> None:
    times = np.full(60, 0.1)
    times[24] = 0.5

    assert training_seconds([0.15], [20], _TIMED, times, np.zeros(60)) == [0.15]


def test_a_turn_that_is_mostly_pauses_says_nothing() -> None:
    times, pauses = np.full(60, 0.4), np.zeros(60)
    pauses[20:25] = 0.3

    assert training_seconds([0.4, 0.4], [20, 40], _TIMED, times, pauses) == [0.4]


def test_a_recording_that_ends_sooner_takes_nothing_out() -> None:
    assert training_seconds([0.1], [80], _TIMED, np.full(60, 0.1), np.zeros(60)) == [0.1]


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
    assert first_steady_step(steps(ready), first) == expected


def test_records_that_hold_several_steps_count_as_so_many() -> None:
    assert first_steady_step(steps(FALLING, each=2), 8) == 26


def rank(*figures: dict[str, Any]) -> Any:
    return SimpleNamespace(recording=SimpleNamespace(values=lambda what: list(figures) if what == "feed" else []))


def figures(seconds: list[float], samples: list[float | None]) -> dict[str, Any]:
    return {"seconds": seconds, "samples": samples, "drained": 0, "epochs": 0}


def test_the_slowest_rank_counts_with_the_samples_of_all() -> None:
    quick, slow = figures([1.0, 1.0, 1.0], [4, 4, 4]), figures([3.0, 1.0], [2, 2])

    assert read_loaders_alone([rank(quick), rank(slow)], 0) == ((3.0, 1.0), (6.0, 6.0))


def test_a_rank_without_figures_leaves_nothing_to_say() -> None:
    assert read_loaders_alone([rank(figures([1.0], [4])), rank()], 0) == ((), ())
    assert read_loaders_alone([], 0) == ((), ())


def test_what_was_still_settling_is_left_out_but_never_more_than_half() -> None:
    found = figures([9.0, 9.0, 1.0, 1.0], [4, 4, 4, 4])

    assert read_loaders_alone([rank(found)], 2)[0] == read_loaders_alone([rank(found)], 60)[0] == (1.0, 1.0)


def test_samples_that_are_not_known_stay_unknown() -> None:
    assert math.isnan(read_loaders_alone([rank(figures([1.0], [None]))], 0)[1][0])


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
