"""The loader workers of all ranks together outnumber the CPU cores.

What it is: `num_workers` is per rank. With several ranks on a host, all their workers and training processes share its
CPU cores.

Why the GPU idles: a training process that gets no CPU core launches nothing; many workers that take turns on few cores
make no more batches than a few workers would.

How it shows in a run: workers times ranks on one host above the CPU cores the run may use, with these all busy.

The fix: `num_workers` for each rank of at most (cores - ranks) / ranks.

What to expect: the same batches with less context switching and less memory, and training processes that are not held
up. How much that is was not measured, so no gain is predicted.

When it is fine: the workers mostly sleep, waiting for storage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "RA903"
REMEDY = "loader.workers"
COMES_FROM = ("IN103",)
_BUSY = 0.85


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use, host = run.training_loader, run.report.host
    here = max(Counter(rank.host for rank in run.report.ranks).values(), default=0)
    if use is None or not use.workers or here < 2 or host is None or host.cpu_cores is None:
        return
    processes = here * (use.workers + 1)
    if processes <= run.cpus or host.cpu_cores < _BUSY * run.cpus:
        return
    workers = max(1, math.floor((run.cpus - here) / here))
    if workers >= use.workers:
        return
    yield FoundInRun(
        severity="medium",
        location=use.made_at,
        evidence={
            "num_workers": use.workers,
            "ranks_on_host": here,
            "processes": processes,
            "cpus": run.cpus,
            "busy_cpus": round(host.cpu_cores, 2),
            "workers": workers,
        },
        cause=message(
            "ra903.cause",
            ranks=here,
            workers=use.workers,
            processes=processes,
            cpus=run.cpus,
            busy=host.cpu_cores,
        ),
        change=message("ra903.change", workers=workers),
    )
