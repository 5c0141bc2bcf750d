"""Runs that have IN102, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting, WorkerProcesses
from flatout.records.report import HostUse
from tests.cases.evidence import EMPTY_QUEUE, STARVED, STARVED_MS, Case, loader, on_gpu, run, starved_run, worker_cost

_TWO = loader(
    num_workers=2,
    cost=worker_cost(workers=2, fetch_ms_per_sample=6.0, busy_share=0.98, queue_depth=0.1),
    processes=WorkerProcesses(cpu_share=0.97),
)
CASES = (
    Case(
        "finds it when a GPU waits for two busy workers",
        starved_run(_TWO),
        found=True,
    ),
    Case(
        "finds it on a CPU with processors to spare",
        run(loaders=(_TWO,), ms=STARVED_MS, waiting=EMPTY_QUEUE, cpus=8.0),
        found=True,
    ),
    Case(
        "quiet when every processor is at work",
        starved_run(_TWO, cpus=3.0, host=HostUse(cpu_cores=2.9)),
        found=False,
    ),
    Case(
        "quiet when the workers have time left and wait for something else",
        starved_run(loader(cost=worker_cost(fetch_ms_per_sample=1.0, busy_share=0.1))),
        found=False,
    ),
    Case(
        "quiet when the waits are those of each epoch's first batch",
        run(
            gpu=STARVED,
            loaders=(_TWO,),
            ms=STARVED_MS,
            waiting=Waiting(0.1, 500.0, rest_ms=1.0, median_ms=1.0, empty_share=0.0, ready_ms=1.0),
        ),
        found=False,
    ),
    Case("quiet when the batches are there in time", run(gpu=on_gpu(), loaders=(_TWO,)), found=False),
)
