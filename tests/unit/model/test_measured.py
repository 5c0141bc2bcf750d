"""What a run tells of its loading."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.model.measured import computing_share, main_demand
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.ledger import Ledger, LedgerEntry, Nature
from flatout.records.machine import MachineUse, NotRunning
from flatout.records.report import Location
from tests.cases.evidence import live_state, loader, run
from tests.unit.report.test_terminal import STARVED


def entry(nature: Nature, looks: float, phase: str = "data") -> LedgerEntry:
    return LedgerEntry(Location("train.py", 7), "__getitem__", phase, nature, False, 1.0, 0.1, looks)


@pytest.mark.parametrize(
    ("entries", "share"),
    [
        ([entry("sleep", 30), entry("python", 10), entry("native", 50, "forward")], 11 / 41),
        ([entry("native", 30), entry("python", 10)], 1.0),
        # Of few looks less is believed, and what a system does not tell counts as computing.
        ([entry("sleep", 1)], 0.5),
        ([entry("unknown", 90)], 1.0),
    ],
)
def test_what_the_training_thread_was_seen_doing_tells_how_much_of_a_sample_is_computing(
    entries: list[LedgerEntry], share: float
) -> None:
    run = Evidence(STARVED, ledger=Ledger(tuple(entries)))

    assert computing_share(run, LoaderUse(1, {"num_workers": 0}, None, True, None)) == pytest.approx(share)


def test_what_the_training_process_computes_with_is_told_without_the_batches_it_makes() -> None:
    machine = MachineUse(2.0, training=NotRunning(0.2, by_own=0.2), helpers=NotRunning(0.3, by_own=0.3))
    own, fed = loader(num_workers=0), loader(num_workers=1)

    def demand(use: LoaderUse, cpu_share: float, **more: Any) -> float:
        ms = {"data": 60.0, "forward": 20.0, "backward": 20.0}
        live = live_state(num_threads=2)
        return main_demand(run(ms=ms, loaders=(use,), live=live, main_cpu_share=cpu_share, **more), use)

    # 1.4 processors are 0.6 for one thread that makes batches, and two threads in the rest.
    assert demand(own, 1.4) == pytest.approx(2.0)
    assert demand(fed, 0.4) == pytest.approx(1.0)
    # Threads that were ready, but had no processor, wanted one.
    assert demand(fed, 0.2, machine=machine) == pytest.approx(0.7 / 0.4)
