"""How the waits for a batch are spread over the steps, and what the loader's processes took of the machine."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from flatout.diagnose.loaders import same_loaders
from flatout.diagnose.ranks import Floats, Rank, during_steps
from flatout.records.evidence import LoaderUse, Waiting, WorkerProcesses
from flatout.records.phases import PHASES
from flatout.store.run import StoredRun

_DATA = PHASES.index("data")
_PASSES = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]
# A wait is late from so many times a worker's mean batch on: workers in step with each other cause waits up to one.
_LATE = 2.0
# A mean over fewer steps tells nothing.
_FEWEST_STEPS = 8
_FEWEST_SAMPLES = 3


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
        means = {name: _mean(values[mine]) for name, values in columns.items()}
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
    return _mean(shares) if np.isfinite(shares).sum() >= _FEWEST_SAMPLES else None


def _mean(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None
