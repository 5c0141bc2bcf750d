"""Runs that have IN118, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import LineCost, Location, WorkerLedger
from tests.cases.evidence import STARVED, STARVED_MS, UNHEALTHY, Case, loader, run, worker_cost

_IN_WORKER = (LineCost(Location("data.py", 12), "__getitem__", "worker", 0.7, 4.0),)
_IN_STEP = (LineCost(Location("data.py", 12), "__getitem__", "data", 0.4, 40.0),)
_WAITING = WorkerLedger(1, 10.0, {"samples": 0.9, "order": 0.1}, {"file": 0.7, "python": 0.3})
_WARP = """def warp(image, shift):
    out = np.zeros_like(image)
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            out[row, column] = image[row + shift[row, column], column]
    return out
"""
_IN_LOOP = (LineCost(Location("data.py", 5), "warp", "worker", 0.8, 8.0),)
_IN_PYTHON = WorkerLedger(1, 10.0, {"samples": 0.9, "order": 0.1}, {"python": 0.9, "native": 0.1})
CASES = (
    Case(
        "finds it when a sample is made pixel by pixel",
        run(
            gpu=STARVED,
            ms=STARVED_MS,
            verdict=UNHEALTHY,
            worker_lines=_IN_LOOP,
            worker_ledger=_IN_PYTHON,
            loaders=(loader(num_workers=1, cost=worker_cost(workers=1, fetch_ms_per_sample=10.0, busy_share=0.95)),),
            cpus=1.0,
            files={"data.py": _WARP},
        ),
        found=True,
    ),
    Case(
        "finds it when workers wait for files",
        run(gpu=STARVED, ms=STARVED_MS, verdict=UNHEALTHY, worker_lines=_IN_WORKER, worker_ledger=_WAITING),
        found=True,
    ),
    Case(
        "finds it when workers are too slow",
        run(gpu=STARVED, ms=STARVED_MS, verdict=UNHEALTHY, worker_lines=_IN_WORKER),
        found=True,
    ),
    Case(
        "finds it when the training process makes the samples",
        run(ms=STARVED_MS, verdict=UNHEALTHY, loaders=(loader(num_workers=0),), cpus=1.0, all_lines=_IN_STEP),
        found=True,
    ),
    Case("finds it when no line was seen", run(gpu=STARVED, ms=STARVED_MS, verdict=UNHEALTHY), found=True),
    Case(
        "quiet when the wait is short",
        run(ms={"data": 3.0, "forward": 30.0, "backward": 60.0, "optimizer": 7.0}, worker_lines=_IN_WORKER),
        found=False,
    ),
    Case("quiet when batches are there", run(worker_lines=_IN_WORKER), found=False),
)
SOURCE_CASES = ()
