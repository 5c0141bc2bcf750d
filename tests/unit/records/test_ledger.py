"""What a share of the step is at least, by the looks it comes from."""

from __future__ import annotations

import pytest

from flatout.attach import wire
from flatout.records import ledger
from flatout.records.ledger import Ledger, LedgerEntry, Part
from flatout.records.report import Location


def entry(part: Part, share: float, looks: float, phase: str = "forward") -> LedgerEntry:
    return LedgerEntry(Location("train.py", 1), "main", phase, "native", False, 10 * share, share, looks, part)


def made(*entries: LedgerEntry) -> Ledger:
    return Ledger(entries, {entry.part: entry.share for entry in entries})


def test_a_single_look_proves_little_and_many_prove_the_share() -> None:
    few = made(entry("native", 0.12, 1), entry("model", 0.24, 2), entry("optimizer", 0.64, 40, "optimizer"))
    many = made(entry("native", 0.12, 1000), entry("model", 0.24, 2000))

    assert few.least_share_of("native") < 0.03
    assert many.least_share_of("native") == pytest.approx(0.12, rel=0.05)
    assert few.share_of("native") == many.share_of("native")


def test_a_share_without_looks_is_as_it_is() -> None:
    assert Ledger((), {"not measured": 0.3}).least_share_of("native", "not measured") == 0.3


def test_the_recording_means_the_same() -> None:
    assert (wire.IN_MODULE, wire.ON_GRADIENTS) == (ledger.IN_MODULE, ledger.ON_GRADIENTS)
