"""Runs that have IN110, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.problems.input.repeated_decode import REMEDY
from flatout.records.evidence import WorkerProcesses
from flatout.records.message import verbatim
from flatout.records.report import CopySite, HostUse, Location, RemedyState
from tests.cases.evidence import Case, loader, on_gpu, run, starved_run, worker_cost

_DEAR = loader(
    cost=worker_cost(fetch_ms_per_sample=12.0, busy_share=0.98, samples=9600),
    processes=WorkerProcesses(cpu_share=0.97),
    dataset_len=1200,
)
_FULL = HostUse(cpu_cores=4.8, memory_peak=8 << 30)
CASES = (
    Case(
        "finds it when all processors decode the same files again",
        starved_run(_DEAR, cpus=5.0, host=_FULL),
        found=True,
    ),
    Case(
        "finds it with the part that fits in memory",
        starved_run(
            _DEAR,
            cpus=5.0,
            host=_FULL,
            copies=(CopySite(Location("train.py", 12), "train", 1.0, 2.0, 32 * 4e7, 1.0, 1.0),),
            environment={"memory_bytes": 64 << 30},
        ),
        found=True,
    ),
    Case(
        "quiet when there are processors for more workers",
        starved_run(_DEAR, cpus=16.0),
        found=False,
    ),
    Case(
        "quiet when every sample was made once",
        starved_run(
            loader(
                cost=worker_cost(fetch_ms_per_sample=12.0, busy_share=0.98),
                processes=WorkerProcesses(cpu_share=0.97),
            ),
            cpus=5.0,
            host=_FULL,
        ),
        found=False,
    ),
    Case(
        "quiet when the script keeps them with flatout.cached",
        starved_run(
            replace(_DEAR, settings={**_DEAR.settings, "dataset": "flatout.feed.cache.dataset.CachedDataset"}),
            cpus=5.0,
            host=_FULL,
        ),
        found=False,
    ),
    Case(
        "quiet under the remedy that keeps them",
        starved_run(_DEAR, cpus=5.0, host=_FULL, remedies=(RemedyState(REMEDY, "lossless", {}, "applied"),)),
        found=False,
    ),
    Case(
        "finds it when the remedy was refused",
        starved_run(
            _DEAR,
            cpus=5.0,
            host=_FULL,
            remedies=(RemedyState(REMEDY, "lossless", {}, "refused", verbatim("samples are random")),),
        ),
        found=True,
    ),
    Case("quiet when the samples come in time", run(gpu=on_gpu(), loaders=(_DEAR,), cpus=5.0), found=False),
)
