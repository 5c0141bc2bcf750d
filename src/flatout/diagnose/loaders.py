"""What the loaders' workers spend on a sample, how soon they start, and whether they keep up."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flatout.diagnose.ranks import Floats, Rank, during_steps, reduce_known, told
from flatout.records.evidence import LoaderUse, Waiting, WorkerProcesses
from flatout.records.report import PHASES, WorkerCost
from flatout.store.recording import Recording
from flatout.store.run import StoredRun

_UNKNOWN_LOADER = 0xFFFFFFFF
_NO_LOADER = 0  # loaders are numbered from 1
_DATA = PHASES.index("data")
# A wait is late from so many times a worker's mean batch on: workers in step with each other cause waits up to one.
_LATE = 2.0
# A mean over fewer steps tells nothing.
_FEWEST_STEPS = 8
_FEWEST_SAMPLES = 3
_FIRST = ("first_ns", "first_samples")


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
    # The first batch of each process.
    first_s: float = 0.0
    first_samples: float = 0.0
    startups_s: list[float] = field(default_factory=list)


def same_loaders(recording: Recording) -> dict[int, int]:
    """Loader numbers by the first with the same place and settings: a script may make its loader anew every epoch."""
    first: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for value in told(recording, "loader"):
        if isinstance(value.get("id"), int):
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
    first = {name: np.nan_to_num(recording.column("fetch", name).astype(np.float64)) for name in _FIRST}
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
        fetching.first_s += float(first["first_ns"][mine].sum()) * 1e-9
        fetching.first_samples += float(first["first_samples"][mine].sum())
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
    busy_s = fetching.fetch_s + fetching.collate_s
    # What a process does once, with its first batch, is part of its start.
    later = fetching.samples - fetching.first_samples
    part = 1.0 - fetching.first_s / busy_s if later > 0 and busy_s > 0 else 1.0
    samples = max(1.0, later if later > 0 else fetching.samples)
    return WorkerCost(
        loader=loader,
        workers=len(workers),
        samples=int(fetching.samples),
        fetch_ms_per_sample=1e3 * part * fetching.fetch_s / samples,
        collate_ms_per_sample=1e3 * part * fetching.collate_s / samples,
        slowest_batch_ms=1e3 * fetching.slowest_s,
        busy_share=min(1.0, busy_s / fetching.alive_s) if workers and fetching.alive_s > 0 else None,
        startup_s=float(np.median(fetching.startups_s)) if fetching.startups_s else None,
        queue_depth=depth,
    )


# How the waits for a batch are spread over the steps, and what the loader's processes took of the machine.


_PASSES = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]


def waits(ranks: Sequence[Rank], use: LoaderUse | None) -> Waiting | None:
    """The waits for this loader; None where there are too few steps to say anything."""
    loader = use.number if use is not None else None
    parts = [_of_rank(rank, loader) for rank in ranks if len(rank.steady)]
    if not parts:
        return None
    data_ms, passes_ms, count, firsts, depth = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    rest = firsts == 0
    rest_steps, began = float(count[rest].sum()), float(firsts.sum())
    if rest_steps < _FEWEST_STEPS:
        # Nearly every step began with an iterator of its own, or there are few steps at all.
        if began < _FEWEST_STEPS:
            return None
        return Waiting(min(1.0, began / float(count.sum())), float(data_ms.sum() / count.sum()), 0.0, 0.0)
    rest_ms, first_ms = _rest_and_first(data_ms, count, firsts)
    usual_ms, at_first_ms = _rest_and_first(passes_ms, count, firsts)
    per_step = data_ms[rest] / count[rest]
    measured = rest & np.isfinite(depth)
    ready = measured & (depth >= 1)
    late = per_step > _LATE * _batch_ms(use, ranks)
    return Waiting(
        first_share=began / float(count.sum()),
        first_ms=first_ms,
        rest_ms=rest_ms,
        median_ms=float(np.median(per_step)),
        late_ms=float(data_ms[rest][late].sum() / rest_steps),
        late_share=float(late.mean()),
        empty_share=float((depth[measured] < 1).mean()) if measured.any() else None,
        ready_ms=float(data_ms[ready].sum() / count[ready].sum()) if ready.any() else None,
        first_slower_ms=None if at_first_ms is None else max(0.0, at_first_ms - usual_ms),
    )


def _rest_and_first(ms: Floats, count: Floats, firsts: Floats) -> tuple[float, float | None]:
    """The mean of steps amid an epoch, and of those that begin one; None where none does."""
    rest, began = firsts == 0, float(firsts.sum())
    rest_ms = float(ms[rest].sum() / count[rest].sum())
    if not began:
        return rest_ms, None
    # A record may hold several steps: those beside the first of an epoch took as long as the others did.
    return rest_ms, (float(ms[~rest].sum()) - rest_ms * (float(count[~rest].sum()) - began)) / began


def _of_rank(rank: Rank, loader: int | None) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """For each record of steps: its wait and its passes in ms, its steps, how many epochs of the loader began in it,
    batches ready.
    """
    steady = rank.steady
    same = same_loaders(rank.recording)
    numbers = rank.recording.column("epoch", "loader").tolist()
    begun_ns = rank.recording.column("epoch", "start_ns")
    mine = np.array([same.get(int(number), int(number)) == loader for number in numbers], bool)
    starts = steady.start_ns.astype(np.int64)
    begun = begun_ns[mine].astype(np.int64) if mine.any() else np.empty(0, np.int64)
    begun = begun[begun >= starts[0]]
    at = np.searchsorted(starts, begun, side="right") - 1
    firsts = np.bincount(at, minlength=len(starts)).astype(np.float64)
    # An iterator made after the last step belongs to no step.
    ends = starts[-1] + int(steady.wall_s[-1] * 1e9)
    firsts[-1] -= float((begun > ends).sum())
    data_ms = np.asarray(steady.phase_s[:, _DATA], np.float64) * 1e3
    passes_ms = np.asarray(steady.phase_s[:, _PASSES], np.float64).sum(axis=1) * 1e3
    return data_ms, passes_ms, steady.count, np.maximum(firsts, 0.0), steady.queue_depth


def _batch_ms(use: LoaderUse | None, ranks: Sequence[Rank]) -> float:
    """What one process takes for a batch on average; without end where it is not known."""
    if use is None or use.sample_ms is None:
        return math.inf
    samples = np.concatenate([rank.steady.samples / rank.steady.count for rank in ranks])
    per_step = float(np.median(samples[np.isfinite(samples)])) if np.isfinite(samples).any() else math.inf
    # A loader without a batch size gives whole batches, one a step.
    return use.sample_ms * (use.batch_size or per_step)


def worker_pids(ranks: Sequence[Rank]) -> dict[int, set[int]]:
    """The worker processes that each loader started, by its number."""
    found: dict[int, set[int]] = {}
    for rank in ranks:
        same = same_loaders(rank.recording)
        for value in rank.recording.values("workers"):
            number = int(value["loader"])
            found.setdefault(same.get(number, number), set()).update(int(pid) for pid in value["pids"])
    return found


def process_use(
    run: StoredRun, ranks: Sequence[Rank], pids: Mapping[int, Collection[int]]
) -> dict[int, WorkerProcesses]:
    """What one worker of each loader took while training was steady. Workers too short-lived to be seen are absent."""
    rows = run.rows("processes")
    if rows is None:
        return {}
    rows = during_steps(rows, ranks)
    pid = rows.column("pid")
    names = ("cpu_share", "threads", "read_bytes_per_s", "major_faults_per_s")
    columns = {name: rows.column(name) for name in names}
    found = {}
    for loader, of_loader in pids.items():
        mine = np.isin(pid, sorted(of_loader))
        means = {name: reduce_known(values[mine]) for name, values in columns.items()}
        if np.isfinite(columns["cpu_share"][mine]).sum() >= _FEWEST_SAMPLES and means["cpu_share"] is not None:
            found[loader] = WorkerProcesses(
                means["cpu_share"], means["threads"], means["read_bytes_per_s"], means["major_faults_per_s"]
            )
    return found


def main_cpu_share(run: StoredRun, ranks: Sequence[Rank]) -> float | None:
    """Of the training processes that were sampled: mean processor seconds a second."""
    rows = run.rows("processes")
    if rows is None:
        return None
    rows = during_steps(rows, ranks)
    trainers = [rank.recording.facts.get("pid") for rank in ranks]
    shares = rows.column("cpu_share")[np.isin(rows.column("pid"), [pid for pid in trainers if isinstance(pid, int)])]
    return reduce_known(shares) if np.isfinite(shares).sum() >= _FEWEST_SAMPLES else None
