"""What the loaders' workers spend on a sample, how soon they start, and whether they keep up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.report import WorkerCost
from flatout.store.recording import Recording
from flatout.store.run import StoredRun


@dataclass(slots=True)
class _Fetching:
    """Sums over all processes that fetch for one loader."""

    workers: set[int] = field(default_factory=set)
    batches: float = 0.0
    samples: float = 0.0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    alive_s: float = 0.0
    slowest_s: float = 0.0
    startups_s: list[float] = field(default_factory=list)


def worker_costs(run: StoredRun, ranks: Sequence[Rank]) -> tuple[WorkerCost, ...]:
    """One row a loader that fetched anything. Loaders of the same number in several ranks are the same loader."""
    loaders: dict[int, _Fetching] = defaultdict(_Fetching)
    for recording in run.recordings:
        if recording.count("fetch"):
            _add(recording, loaders, ranks)
    depth = _queue_depth(ranks)
    with_workers = [loader for loader, fetching in loaders.items() if any(worker >= 0 for worker in fetching.workers)]
    # Depth is measured per step: it belongs to the loader that feeds the training.
    busiest = max(with_workers, key=lambda loader: loaders[loader].batches, default=None)
    return tuple(
        _cost(loader, fetching, depth if loader == busiest else None) for loader, fetching in sorted(loaders.items())
    )


def _add(recording: Recording, loaders: dict[int, _Fetching], ranks: Sequence[Rank]) -> None:
    names = ("worker", "start_ns", "end_ns", "batches", "samples", "fetch_ns", "collate_ns", "max_batch_ns")
    columns = {name: recording.column("fetch", name).astype(np.float64) for name in names}
    of_loader = recording.column("fetch", "loader")
    for loader in np.unique(of_loader).tolist():
        mine = of_loader == loader
        fetching = loaders[int(loader)]
        fetching.workers |= {int(worker) for worker in np.unique(columns["worker"][mine])}
        fetching.batches += float(columns["batches"][mine].sum())
        fetching.samples += float(columns["samples"][mine].sum())
        fetching.fetch_s += float(columns["fetch_ns"][mine].sum()) * 1e-9
        fetching.collate_s += float(columns["collate_ns"][mine].sum()) * 1e-9
        alive_ns = columns["end_ns"][mine] - columns["start_ns"][mine]
        fetching.alive_s += float(np.maximum(alive_ns, 0.0).sum()) * 1e-9
        fetching.slowest_s = max(fetching.slowest_s, float(columns["max_batch_ns"][mine].max()) * 1e-9)
        startup_s = _startup_s(recording, int(loader), int(recording.column("fetch", "start_ns")[mine].min()), ranks)
        if startup_s is not None and columns["worker"][mine].max() >= 0:
            fetching.startups_s.append(startup_s)


def _startup_s(worker: Recording, loader: int, first_fetch_ns: int, ranks: Sequence[Rank]) -> float | None:
    """From the start of the epoch in the main process to the worker's first fetch; one host has one clock."""
    host, parent = worker.facts.get("host"), worker.facts.get("ppid")
    same_host = [rank.recording for rank in ranks if rank.host == host]
    # Behind a fork server the parent is the server; then any rank of the host may be the one.
    mains = [recording for recording in same_host if recording.facts.get("pid") == parent] or same_host
    starts = [
        int(start)
        for recording in mains
        for of, start in zip(recording.column("epoch", "loader"), recording.column("epoch", "start_ns"), strict=True)
        if of == loader and start <= first_fetch_ns
    ]
    return (first_fetch_ns - max(starts)) * 1e-9 if starts else None


def _queue_depth(ranks: Sequence[Rank]) -> float | None:
    depths = [rank.steady.queue_depth[np.isfinite(rank.steady.queue_depth)] for rank in ranks]
    joined = np.concatenate(depths) if depths else np.empty(0)
    return float(joined.mean()) if len(joined) else None


def _cost(loader: int, fetching: _Fetching, depth: float | None) -> WorkerCost:
    workers = {worker for worker in fetching.workers if worker >= 0}
    samples = max(1.0, fetching.samples)
    busy_s = fetching.fetch_s + fetching.collate_s
    return WorkerCost(
        loader=loader,
        workers=len(workers),
        samples=int(fetching.samples),
        fetch_ms_per_sample=1e3 * fetching.fetch_s / samples,
        collate_ms_per_sample=1e3 * fetching.collate_s / samples,
        slowest_batch_ms=1e3 * fetching.slowest_s,
        busy_share=min(1.0, busy_s / fetching.alive_s) if workers and fetching.alive_s > 0 else None,
        startup_s=float(np.median(fetching.startups_s)) if fetching.startups_s else None,
        queue_depth=depth,
    )
