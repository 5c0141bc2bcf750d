"""Runs that have HO411, and that must stay quiet."""

from __future__ import annotations

from flatout.records.ledger import Ledger, LedgerEntry, Nature, Part
from flatout.records.report import Location
from tests.cases.evidence import UNHEALTHY, Case, on_gpu, run


def _entry(line: int, ms: float, part: Part, nature: Nature = "python", looks: float = 50.0) -> LedgerEntry:
    return LedgerEntry(Location("train.py", line), "score", "forward", nature, False, ms, ms / 100, looks, part)


def _ledger(*entries: LedgerEntry) -> Ledger:
    shares: dict[Part, float] = {}
    for entry in entries:
        shares[entry.part] = shares.get(entry.part, 0.0) + entry.share
    return Ledger(entries, shares)


_MS = {"forward": 50.0, "backward": 40.0, "optimizer": 10.0}
CASES = (
    Case(
        "finds it when a metric takes a fifth of the step",
        run(ms=_MS, verdict=UNHEALTHY, ledger=_ledger(_entry(7, 12.0, "python"), _entry(8, 8.0, "native", "native"))),
        found=True,
    ),
    Case(
        "finds it when the GPU waits for it",
        run(
            gpu=on_gpu(util_mean=50.0, drained_share=0.8),
            ms=_MS,
            verdict=UNHEALTHY,
            ledger=_ledger(_entry(7, 20.0, "native", "native")),
        ),
        found=True,
    ),
    Case(
        "quiet when it is the model",
        run(ms=_MS, verdict=UNHEALTHY, ledger=_ledger(_entry(7, 40.0, "model", "native"))),
        found=False,
    ),
    Case(
        "quiet when the run computes for most of its steps",
        run(ms=_MS, ledger=_ledger(_entry(7, 8.0, "python"))),
        found=False,
    ),
    Case(
        "quiet when it takes little",
        run(ms=_MS, verdict=UNHEALTHY, ledger=_ledger(_entry(7, 3.0, "python"))),
        found=False,
    ),
    Case(
        "quiet when it was seen but twice",
        run(ms=_MS, verdict=UNHEALTHY, ledger=_ledger(_entry(7, 20.0, "python", looks=2.0))),
        found=False,
    ),
    Case(
        "quiet when the GPU computes meanwhile",
        run(
            gpu=on_gpu(busy_share=1.0),
            ms=_MS,
            verdict=UNHEALTHY,
            ledger=_ledger(_entry(7, 20.0, "python")),
        ),
        found=False,
    ),
)
SOURCE_CASES = ()
