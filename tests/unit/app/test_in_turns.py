"""Turns within one process: an evaluation that falls into one is no part of its steps."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.app.in_turns import trained_s


def test_pauses_are_taken_out_of_the_turn_they_fell_into() -> None:
    pauses = np.zeros(60)
    pauses[24] = 4.0

    assert trained_s([0.6, 0.1], [20, 40], 8, pauses) == pytest.approx([0.1, 0.1])


def test_a_recording_that_ends_sooner_takes_nothing_out() -> None:
    assert trained_s([0.1], [80], 8, np.zeros(60)) == [0.1]
