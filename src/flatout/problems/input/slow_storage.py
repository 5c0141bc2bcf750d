"""Workers wait for storage.

What it is: making a sample takes long although it computes little: the worker waits for a file, a network disk, an
object store, or pages of a mapped file.

Why the GPU idles: the workers stand still together, and the training waits with them, on a machine with idle
processors.

How it shows in a run: time in `data`, no batch ready, workers occupied all the time but using little of a processor;
often reads from a network file system or a rotating disk, major faults, or processors waiting for I/O.

The fix: copy the data to a local disk (or memory) before training, or pack small files into large ones. Until then
more workers overlap the waiting: they need no processor each.

What to expect: a sample costs its computing alone once its data is near; the training then runs at its own pace, or at
that of the samples' computing, whichever is slower.

When it is fine: the first epoch after a start reads from storage, later ones from the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import EMPTY_QUEUE, STARVED, STARVED_MS, Case, loader, on_gpu, run, worker_cost
from flatout.problems.found import FoundInRun
from flatout.problems.input.feeding import (
    batch_ms,
    epoch_start_ms,
    gain_at,
    steady_wait_ms,
    workers_for,
)
from flatout.problems.input.sample_lines import dearest_line
from flatout.problems.input.storage import storage_is_to_blame, storage_signs, waits_share
from flatout.problems.input.uneven import held_up_by_few, mean_batch_ms
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence, Series, WorkerProcesses

CODE = "IN104"
# A disk with requests in flight all the time gives no more to more workers.
_DISK_FULL = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    if use is None or not use.workers or not run.step_ms or steady_wait_ms(run) < WORTH * run.step_ms:
        return
    if not storage_is_to_blame(run, use) or held_up_by_few(run, use):
        return
    waits, work_ms = waits_share(run, use), batch_ms(run, use) or 0.0
    near_ms = work_ms * (1 - waits) / use.workers
    words = f"loading {near_ms:.3g} ms over {use.workers} workers that no longer wait"
    starts_ms = epoch_start_ms(run, sooner_ms=waits * mean_batch_ms(run, use))
    gain = gain_at(run, near_ms, words, starts_ms, caution=1.5)
    if gain is None:
        return
    signs = storage_signs(run, use)
    workers = workers_for(run, use)
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": use.workers,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "sample_ms": round(use.sample_ms or 0.0, 3),
            "waiting_share_of_sample": round(waits, 3),
            **dearest_line(run),
            **signs,
        },
        cause=f"a worker takes {use.sample_ms or 0.0:.3g} ms for a sample and waits for {waits:.0%} of that"
        + (f", with the data on {signs['filesystem']}" if "filesystem" in signs else ""),
        change=_change(run, workers if workers > use.workers else 0),
        predicted_gain=gain,
    )


def _change(run: Evidence, workers: int) -> str:
    near = "copy the data to a local SSD or to memory, or pack it into few large files"
    disk = run.series.get("disk_busy_share")
    if not workers or (disk is not None and disk.values and max(disk.values) >= _DISK_FULL):
        return near
    return f"{near}; meanwhile num_workers={workers}: they wait at the same time"


_SLOW = worker_cost(fetch_ms_per_sample=12.0, busy_share=0.97, queue_depth=0.0)
_NFS = {"data_filesystems": [{"mount_point": "/data", "type": "nfs4", "is_network": True, "files": 9}]}
_WAITING = loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.1))
CASES = (
    Case(
        "finds it when workers wait for a network file system",
        run(gpu=STARVED, loaders=(_WAITING,), ms=STARVED_MS, waiting=EMPTY_QUEUE, environment=_NFS),
        found=True,
    ),
    Case(
        "finds it when as many workers as processors all wait",
        run(gpu=STARVED, loaders=(_WAITING,), ms=STARVED_MS, waiting=EMPTY_QUEUE, cpus=4.0),
        found=True,
    ),
    Case(
        "quiet when the workers compute, though the data is on a network",
        run(
            gpu=STARVED,
            loaders=(loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.95)),),
            ms=STARVED_MS,
            waiting=EMPTY_QUEUE,
            environment=_NFS,
        ),
        found=False,
    ),
    Case(
        "quiet when the workers get no processor because others have them all",
        run(
            gpu=STARVED,
            loaders=(loader(cost=_SLOW, processes=WorkerProcesses(cpu_share=0.3)),),
            ms=STARVED_MS,
            waiting=EMPTY_QUEUE,
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
        run(gpu=STARVED, loaders=(_WAITING,), ms=STARVED_MS, waiting=EMPTY_QUEUE),
        found=False,
    ),
)
