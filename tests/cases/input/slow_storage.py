"""Runs that have IN104, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Series, WorkerProcesses
from flatout.records.report import WorkerLedger
from tests.cases.evidence import Case, loader, on_gpu, run, starved_run, worker_cost

_SLOW = worker_cost(fetch_ms_per_sample=12.0, busy_share=0.97, queue_depth=0.0)
_NFS = {"data_filesystems": [{"mount_point": "/data", "type": "nfs4", "is_network": True, "files": 9}]}
_WAITING = loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.1))


def _ledger(**natures: float) -> WorkerLedger:
    return WorkerLedger(1, 10.0, {"samples": 0.97, "order": 0.03}, natures, computing=0.1)


CASES = (
    Case(
        "finds it when few workers are seen waiting for files",
        starved_run(_WAITING, worker_ledger=_ledger(file=0.7, pipe=0.2, python=0.1)),
        found=True,
    ),
    Case(
        "quiet when they wait for each other",
        starved_run(_WAITING, environment=_NFS, worker_ledger=_ledger(lock=0.9, python=0.1)),
        found=False,
    ),
    Case(
        "finds it when workers wait for a network file system",
        starved_run(_WAITING, environment=_NFS),
        found=True,
    ),
    Case(
        "finds it when as many workers as processors all wait",
        starved_run(_WAITING, cpus=4.0),
        found=True,
    ),
    Case(
        "quiet when the workers compute, though the data is on a network",
        starved_run(loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.95)), environment=_NFS),
        found=False,
    ),
    Case(
        "quiet when the workers get no processor because others have them all",
        starved_run(
            loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.3)),
            environment=_NFS,
            series={"cpu_share": Series((0.0,), (1.0,)), "load_1min": Series((0.0,), (40.0,))},
        ),
        found=False,
    ),
    Case(
        "quiet when the waiting is hidden behind the computing",
        run(gpu=on_gpu(), loaders=(_WAITING,), environment=_NFS),
        found=False,
    ),
    Case(
        "quiet when few workers wait for something unknown: there it is the workers that are too few",
        starved_run(_WAITING),
        found=False,
    ),
)
