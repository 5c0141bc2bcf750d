"""Turns within one process: an evaluation that falls into one is no part of its steps."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.app.in_turns import trained_s

_TIMED = 8


def test_steps_with_a_pause_and_what_follows_are_taken_out_of_the_turn_they_fell_into() -> None:
    times, pauses = np.full(60, 0.1), np.zeros(60)
    times[24], pauses[24] = 4.1, 3.5  # not all of the pause was told
    times[25] = 0.5  # its loader begins anew

    whole = [times[first : first + _TIMED].mean() for first in (20, 40)]

    assert trained_s(whole, [20, 40], _TIMED, times, pauses) == pytest.approx([0.1, 0.1])


def test_long_steps_without_a_pause_stay() -> None:
    times = np.full(60, 0.1)
    times[24] = 0.5

    assert trained_s([0.15], [20], _TIMED, times, np.zeros(60)) == [0.15]


def test_a_turn_that_is_mostly_pauses_says_nothing() -> None:
    times, pauses = np.full(60, 0.4), np.zeros(60)
    pauses[20:25] = 0.3

    assert trained_s([0.4, 0.4], [20, 40], _TIMED, times, pauses) == [0.4]


def test_a_recording_that_ends_sooner_takes_nothing_out() -> None:
    assert trained_s([0.1], [80], _TIMED, np.full(60, 0.1), np.zeros(60)) == [0.1]
