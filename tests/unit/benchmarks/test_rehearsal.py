from __future__ import annotations

import argparse

import pytest

from benchmarks.rehearsal import WORKLOADS, searched

_OPTIONS = argparse.Namespace(budget="4m", start=12.0, processes=0.06, allow=["numeric"])


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "healthy"])
def test_four_minutes_are_enough_for_what_matters_most(name: str) -> None:
    found = searched(name, _OPTIONS, seed=1)

    assert {"loader.workers", "memo.function"} & set(found.fix.profile)
    assert found.fix.gain is not None and found.fix.gain.low > 1.3
    assert found.took_s < 300


def test_what_needs_nothing_keeps_nothing() -> None:
    assert not searched("healthy", _OPTIONS, seed=1).fix.profile


def test_arithmetic_is_looked_at_when_the_batches_come_in_time() -> None:
    assert "precision.bf16" in searched("gray_cnn", _OPTIONS, seed=1).fix.profile
