"""What the loaders' workers spend on a sample, how soon they start, and whether they keep up."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.report import WorkerCost
from flatout.store.recording import Recording
from flatout.store.run import StoredRun

_UNKNOWN_LOADER = 0xFFFFFFFF
_NO_LOADER = 0  # loaders are numbered from 1


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


def same_loaders(recording: Recording) -> dict[int, int]:
    """Loader numbers by the first with the same place and settings: a script may make its loader anew every epoch."""
    first: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for value in recording.values("loader"):
        if isinstance(value, dict) and isinstance(value.get("id"), int):
            number = value["id"]
            settings = repr(sorted((name, item) for name, item in value.items() if name != "id"))
            numbers[number] = first.setdefault(settings, number)
    return numbers


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
    first_fetch_ns = int(recording.column("fetch", "start_ns").min())
    in_worker = recording.facts.get("role") == "worker"
    start = _started_by(recording, first_fetch_ns, ranks) if in_worker else None
    of_loader = np.array([start.loader] * recording.count("fetch") if start else _own_loaders(recording), np.int64)
    for loader in np.unique(of_loader).tolist():
        mine = of_loader == loader
        fetching = loaders[loader]
        fetching.workers |= {int(worker) for worker in np.unique(columns["worker"][mine])}
        fetching.batches += float(columns["batches"][mine].sum())
        fetching.samples += float(columns["samples"][mine].sum())
        fetching.fetch_s += float(columns["fetch_ns"][mine].sum()) * 1e-9
        fetching.collate_s += float(columns["collate_ns"][mine].sum()) * 1e-9
        alive_ns = columns["end_ns"][mine] - columns["start_ns"][mine]
        fetching.alive_s += float(np.maximum(alive_ns, 0.0).sum()) * 1e-9
        fetching.slowest_s = max(fetching.slowest_s, float(columns["max_batch_ns"][mine].max()) * 1e-9)
        if start:
            fetching.startups_s.append((first_fetch_ns - start.epoch_ns) * 1e-9)


@dataclass(frozen=True, slots=True)
class _Start:
    """Which loader's epoch started a worker, and when."""

    loader: int
    epoch_ns: int


def loader_of(worker: Recording, ranks: Sequence[Rank]) -> int | None:
    """The number of the loader that this worker process fetched for; None where that is not known."""
    if not worker.count("fetch"):
        return None
    start = _started_by(worker, int(worker.column("fetch", "start_ns").min()), ranks)
    return start.loader if start is not None else None


def _started_by(worker: Recording, first_fetch_ns: int, ranks: Sequence[Rank]) -> _Start | None:
    """The main process notes the numbers of the workers it starts. One host has one clock, so times compare."""
    host, pid = worker.facts.get("host"), worker.facts.get("pid")
    starts = [
        _Start(same.get(int(value["loader"]), int(value["loader"])), int(value["start_ns"]))
        for rank in ranks
        if rank.host == host
        for same in [same_loaders(rank.recording)]
        for value in rank.recording.values("workers")
        if pid in value["pids"] and value["start_ns"] <= first_fetch_ns
    ]
    return max(starts, key=lambda start: start.epoch_ns, default=None)


def _own_loaders(recording: Recording) -> list[int]:
    """The loader of each fetch record: as written, else (in the main process) of the epoch begun last before it."""
    written = recording.column("fetch", "loader").tolist()
    epochs = sorted(
        (int(start), int(loader))
        for loader, workers, start in zip(
            *(recording.column("epoch", name).tolist() for name in ("loader", "workers", "start_ns")), strict=True
        )
        if not workers
    )
    begins = [start for start, _ in epochs]
    found = []
    for loader, start in zip(written, recording.column("fetch", "start_ns").tolist(), strict=True):
        at = bisect.bisect_right(begins, start) - 1
        found.append(epochs[at][1] if loader == _UNKNOWN_LOADER and at >= 0 else int(loader))
    same = same_loaders(recording)
    return [_NO_LOADER if loader == _UNKNOWN_LOADER else same.get(loader, loader) for loader in found]


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
