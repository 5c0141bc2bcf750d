"""A judgement of durations on a machine that was not quiet."""

from __future__ import annotations

import pytest

from tests.quiet import MOST_LATE_S, MOST_STOLEN, lateness_s, processor_s, stolen_share, why_excused


def test_the_share_that_other_virtual_machines_had() -> None:
    assert stolen_share((100.0, 1.0), (110.0, 1.5)) == pytest.approx(0.05)
    assert stolen_share((100.0, 1.0), (100.0, 1.0)) == 0.0

    whole_s, stolen_s = processor_s()
    assert 0 <= stolen_s < whole_s


def test_a_crash_is_never_excused() -> None:
    assert why_excused(AssertionError("5.1 < 5.0"), 2 * MOST_STOLEN, 0.0)
    assert why_excused(AssertionError("5.1 < 5.0"), 0.0, 2 * MOST_LATE_S)
    assert not why_excused(AssertionError("5.1 < 5.0"), MOST_STOLEN, MOST_LATE_S)
    assert not why_excused(KeyError("step"), 2 * MOST_STOLEN, 2 * MOST_LATE_S)


def test_how_late_a_sleeping_thread_wakes() -> None:
    assert lateness_s() > 0
