"""The loader's workers wait for storage instead of computing.

What it is: a sample takes long although it computes little: the worker waits for a file, a network disk, an object
store, or pages of a memory-mapped file.

Why the GPU idles: all workers wait at the same time, and the training waits with them, on a machine with idle CPUs.

How it shows in a run: time in `data`, no batch ready, workers busy all the time but using little CPU; often reads from
a network file system or a rotating disk, major page faults, or I/O wait.

The fix: copy the data to a local disk (or memory) before training, or pack small files into large ones. Until then more
workers overlap the waiting: they do not need a CPU each.

What to expect: once the data is local, a sample costs only its computing; the training then runs at its own speed, or
at that of computing the samples, whichever is slower.

When it is fine: the first epoch after a start reads from storage, later ones from the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import BatchCosts, Edits, Workers
from flatout.problems.found import FoundInRun
from flatout.problems.input.loading import (
    dearest_line,
    has_stragglers,
    is_storage_bound,
    slow_filesystem,
    starving_feed,
    storage_signs,
    waiting_share,
    workers_for,
)
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "IN104"
# A disk with requests in flight all the time gives no more to more workers.
_DISK_FULL = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = starving_feed(run)
    if feed is None or not feed.use.workers:
        return
    use = feed.use
    if not is_storage_bound(run, use) or has_stragglers(run, use):
        return
    waits, work_ms = waiting_share(run, use), feed.work_ms
    workers = workers_for(run, use)
    cause = message("in104.cause", sample_ms=feed.sample_ms, waiting_share=waits)
    filesystem, change, disk = slow_filesystem(run, use), message("in104.change"), run.series.get("disk_busy_share")
    is_full = disk is not None and bool(disk.values) and max(disk.values) >= _DISK_FULL
    more_help = workers > use.workers and not is_full
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": use.workers,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "sample_ms": round(feed.sample_ms, 3),
            "waiting_share_of_sample": round(waits, 3),
            **dearest_line(run),
            **storage_signs(run, use),
        },
        cause=cause if filesystem is None else message("in104.cause_on", cause=cause, filesystem=filesystem),
        change=message("in104.change_meanwhile", change=change, workers=workers) if more_help else change,
        # Storage that is quicker; at worst more of those that wait for it.
        edits=Edits((BatchCosts(work_ms * (1 - waits), work_ms),), worst=(Workers(workers),) if more_help else ()),
    )
