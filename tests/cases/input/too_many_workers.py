"""Runs and code that have IN103, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import WorkerProcesses
from flatout.records.report import HostUse
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, loader, on_gpu, run, worker_cost

_MS = {"data": 145.0, "forward": 70.0, "backward": 195.0, "optimizer": 24.0}
_EACH_MANY = loader(
    num_workers=32,
    cost=worker_cost(workers=32, fetch_ms_per_sample=400.0, busy_share=0.99, queue_depth=1.0),
    processes=WorkerProcesses(cpu_share=0.45, threads=18.0),
)
_STARVED = on_gpu(starved_share=0.33, drained_share=0.9, device_ms={"starved": 390.0, "step": 434.0})
_CROWD = HostUse(cpu_cores=15.0)
CASES = (
    Case(
        "finds it when every worker computes with all processors",
        run(
            gpu=_STARVED,
            loaders=(_EACH_MANY,),
            ms=_MS,
            host=_CROWD,
            main_cpu_share=0.07,
        ),
        found=True,
    ),
    Case(
        "finds it on a CPU",
        run(loaders=(_EACH_MANY,), ms=_MS, host=_CROWD, main_cpu_share=0.07),
        found=True,
    ),
    Case(
        "quiet when the many workers are idle",
        run(
            loaders=(
                loader(
                    num_workers=32,
                    cost=worker_cost(workers=32, busy_share=0.05),
                    processes=WorkerProcesses(cpu_share=0.02, threads=3.0),
                ),
            ),
            main_cpu_share=0.9,
        ),
        found=False,
    ),
    Case(
        "quiet when the training thread has its processor",
        run(loaders=(_EACH_MANY,), ms=_MS, host=_CROWD, main_cpu_share=0.75),
        found=False,
    ),
    Case(
        "quiet when the processors are taken by others",
        run(loaders=(_EACH_MANY,), ms=_MS, host=HostUse(cpu_cores=6.0), main_cpu_share=0.07),
        found=False,
    ),
)

_LOOP = """
for images in loader:
    model(images.to(device)).backward()
    optimizer.step()
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when all processors of the machine are taken",
        "loader = DataLoader(Images(), 32, num_workers=os.cpu_count())  # found\n" + _LOOP,
    ),
    SourceCase(
        "finds it when twice as many are",
        "workers = 2 * (multiprocessing.cpu_count() or 1)  # found\n"
        "loader = DataLoader(Images(), 32, num_workers=workers)\n" + _LOOP,
    ),
    SourceCase(
        "finds it when so many are written down",
        "loader = DataLoader(Images(), 32, num_workers=48)  # found\n" + _LOOP,
    ),
    SourceCase(
        "quiet when some are left",
        "loader = DataLoader(Images(), 32, num_workers=os.cpu_count() - 1)\n"
        "other = DataLoader(Images(), 32, num_workers=os.cpu_count() // 2)\n" + _LOOP,
    ),
    SourceCase(
        "quiet when there is a bound",
        "loader = DataLoader(Images(), 32, num_workers=min(os.cpu_count(), 8))\n" + _LOOP,
    ),
    SourceCase("quiet with a few", "loader = DataLoader(Images(), 32, num_workers=8)\n" + _LOOP),
)
