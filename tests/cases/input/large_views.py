"""Runs that have IN120, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.evidence import CarriedMemory, Evidence
from flatout.records.report import Location, WorkerLedger
from tests.cases.evidence import Case, loader, run, worker_cost

_HERE = {"fresh_memory_ms_per_mib": {"reading": 0.06, "freeing": 0.15}}
_YIELD = Location("stream.py", 31)
_PARTS = {"samples": 0.7, "handover": 0.25, "order": 0.05}
_COST = worker_cost(fetch_ms_per_sample=2.2, collate_ms_per_sample=0.0, busy_share=0.7)


def _run(shown: int, carried: int, batch_bytes: int | None = 1 << 16, **changes: Any) -> Evidence:
    memory = CarriedMemory(shown, carried, _YIELD)
    use = loader(num_workers=1, batch_size=None, cost=_COST, batch_bytes=batch_bytes, carried=memory)
    ledger = WorkerLedger(1, 30.0, changes.pop("parts", _PARTS))
    return run(loaders=(use,), cpus=changes.pop("cpus", 1.0), environment=_HERE, worker_ledger=ledger, **changes)


CASES = (
    Case("finds it when a batch is a slice of a long recording", _run(1 << 16, 40 << 20), found=True),
    Case(
        "finds it by what the training process frees where there are processors enough",
        _run(1 << 16, 60 << 20, cpus=16.0),
        found=True,
    ),
    Case("quiet when batches show all that is sent", _run(40 << 20, 40 << 20), found=False),
    Case("quiet when they show most of it", _run(24 << 20, 40 << 20), found=False),
    Case("quiet when little is sent", _run(1 << 10, 1 << 19), found=False),
    Case("quiet when nothing is sent that was not shared before", _run(0, 0), found=False),
    Case(
        "quiet when it costs next to nothing",
        _run(1 << 16, 2 << 20, cpus=16.0, parts={"samples": 0.7, "handover": 0.001, "order": 0.299}),
        found=False,
    ),
    Case("quiet when flatout's workers send the batches", _run(1 << 16, 40 << 20, batch_bytes=None), found=False),
    Case("quiet when too few batches were looked at", run(environment=_HERE), found=False),
)
