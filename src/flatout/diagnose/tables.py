"""Everything recorded of a run as plain tables: its steps, the device's sampled steps, and each source of telemetry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Floats, Rank, training_ranks
from flatout.diagnose.resources import totals
from flatout.diagnose.timeline import bucket_starts
from flatout.diagnose.trace import counted, offset_ns
from flatout.errors import FlatoutError
from flatout.records.export import Scalar
from flatout.records.report import PHASES
from flatout.records.sample import ROLES
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

# Columns of equal length by name. NaN, and an empty text, are "not measured".
Table = dict[str, NDArray[Any]]
SOURCES = ("gpu", "host", "cores", "processes", "disks", "network", "cgroup")
_DEVICE = ("starved_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms", "step_ms", "boundaries", "drained")
_COUNTS = ("batches", "backwards", "syncs", "copies", "flags")
# Points of a curve; of a longer run each is the mean of a stretch, beside the longest step in it.
MOST_POINTS = 1000
_GPU = (
    ("util_percent", "util_percent", 1.0),
    ("power_w", "power_w", 1.0),
    ("memory_gib", "memory_used_bytes", 2.0**-30),
    ("sm_active_percent", "sm_active_share", 100.0),
    ("tensor_active_percent", "tensor_active_share", 100.0),
)
_HOST = (
    ("cpu_cores", "processes", "cpu_share", 1.0),
    ("rss_gib", "processes", "rss_bytes", 2.0**-30),
    ("read_mb_per_s", "processes", "read_bytes_per_s", 1e-6),
    ("memory_available_gib", "host", "memory_available_bytes", 2.0**-30),
)


def make_tables(run: StoredRun) -> dict[str, Table]:
    """By name. Times are seconds since the first moment that anything was recorded at; empty tables are left out."""
    ranks = training_ranks(run)
    begin_s = _begin_s(run, ranks)
    found = {"steps": _joined([_steps(rank, ranks[0], begin_s) for rank in ranks])}
    found["device"] = _joined([_device(rank) for rank in ranks if rank.recording.count("device")])
    for source in SOURCES:
        found[f"telemetry_{source}"] = _sampled(run, source, begin_s)
    return {name: table for name, table in found.items() if table and len(next(iter(table.values())))}


def _begin_s(run: StoredRun, ranks: tuple[Rank, ...]) -> float:
    moments = [int(rank.steps.start_ns[0]) * 1e-9 for rank in ranks[:1]]
    for source in SOURCES:
        rows = run.rows(source)
        if rows is not None and len(rows.values):
            moments.append(float(rows.column("t_s").min()))
    return min(moments, default=0.0)


def _joined(parts: list[Table]) -> Table:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _steps(rank: Rank, first: Rank, begin_s: float) -> Table:
    steps, count = rank.steps, len(rank.steps)
    start_ns = steps.start_ns.astype(np.int64) + offset_ns(rank, first)
    table: Table = {
        "rank": np.full(count, np.nan if rank.number is None else rank.number),
        "pid": np.full(count, rank.recording.facts.get("pid") or 0, np.int64),
        # Counted from 1; of the last one where a record of a very long run holds several.
        "step": steps.index.astype(np.int64) + 1,
        "steps": steps.count.astype(np.int64),
        "is_warmup": np.arange(count) < count - len(rank.steady),
        "start_s": start_ns * 1e-9 - begin_s,
        "wall_ms": steps.wall_s * 1e3,
        "samples": steps.samples,
    }
    for column, phase in enumerate(PHASES):
        table[f"{phase}_ms"] = steps.phase_s[:, column].astype(np.float64) * 1e3
    table["own_us"] = steps.own_s * 1e6
    table["batches_ready"] = steps.queue_depth
    return table | {name: counted(rank.recording, name) for name in _COUNTS}


def _device(rank: Rank) -> Table:
    recording = rank.recording
    number = recording.column("device", "index").astype(np.int64) + 1
    table: Table = {"rank": np.full(len(number), np.nan if rank.number is None else rank.number), "step": number}
    return table | {name: np.asarray(recording.column("device", name), np.float64) for name in _DEVICE}


def _sampled(run: StoredRun, source: str, begin_s: float) -> Table:
    rows = run.rows(source)
    if rows is None:
        return {}
    table: Table = {name: rows.column(name) for name in rows.columns}
    table["t_s"] = table["t_s"] - begin_s
    if "role" in table:
        table["role"] = np.array([_role(value) for value in table["role"].tolist()], object)
    return table


def _role(value: float) -> str:
    return ROLES[int(value)] if 0 <= value < len(ROLES) else ""


# A run as scalar curves: rates and phases over its steps, and what was sampled, at the step it was sampled in.


def make_scalars(run: StoredRun) -> tuple[Scalar, ...]:
    """Steps are the first rank's, and so is their time; samples are those of all ranks."""
    ranks = training_ranks(run)
    if not ranks:
        raise FlatoutError(f"run {run.id!r} has no training step, so it has no curves")
    found = _of_steps(ranks)
    if run.manifest.host in (None, ranks[0].host):
        found += _sampled_scalars(run, ranks[0])
    return tuple(found)


def _of_steps(ranks: tuple[Rank, ...]) -> list[Scalar]:
    steps = ranks[0].steps
    starts = bucket_starts(len(steps), MOST_POINTS)
    ends = np.append(starts[1:], len(steps)) - 1
    numbers = steps.index[ends].astype(np.int64) + 1
    unix_s = _unix_s(ranks[0], steps.start_ns[ends].astype(np.int64) * 1e-9)
    count, wall_s = np.add.reduceat(steps.count, starts), np.add.reduceat(steps.wall_s, starts)
    # A stretch of which no time was measured has no rate.
    wall_s = np.where(wall_s > 0, wall_s, np.nan)
    curves = {
        "steps_per_s": count / wall_s,
        "samples_per_s": _of_all(ranks) * np.add.reduceat(steps.samples, starts) / wall_s,
        "step_ms": 1e3 * wall_s / count,
        "longest_step_ms": 1e3 * np.maximum.reduceat(steps.wall_s / steps.count, starts),
        "batches_ready": np.add.reduceat(steps.queue_depth, starts) / np.diff(np.append(starts, len(steps))),
    }
    for column, phase in enumerate(PHASES):
        phase_s = np.add.reduceat(steps.phase_s[:, column].astype(np.float64), starts)
        if phase_s.any():
            curves[f"phase_ms/{phase}"] = 1e3 * phase_s / count
    return [one for name, values in curves.items() if (one := _scalar(name, numbers, unix_s, values)) is not None]


def _of_all(ranks: tuple[Rank, ...]) -> float:
    """How many samples all ranks take for one of the first."""
    rates = [rank.steady.samples_per_s for rank in ranks]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / known[0] if len(known) == len(rates) and known[0] > 0 else float(len(ranks))


def _sampled_scalars(run: StoredRun, rank: Rank) -> list[Scalar]:
    found: list[Scalar | None] = []
    gpus = run.rows("gpu")
    for number in _numbers(gpus):
        assert gpus is not None
        mine = gpus.column("gpu") == number
        for name, column, factor in _GPU:
            values = gpus.column(column)[mine] * factor
            found.append(_at_steps(f"gpu{int(number)}/{name}", gpus.column("t_s")[mine], values, rank))
    for name, source, column, factor in _HOST:
        rows = run.rows(source)
        if rows is not None and len(rows.values):
            t_s, values = totals(rows.column("t_s"), rows.column(column))
            found.append(_at_steps(f"host/{name}", t_s, values * factor, rank))
    return [scalar for scalar in found if scalar is not None]


def _numbers(rows: Rows | None) -> list[float]:
    if rows is None or not len(rows.values):
        return []
    gpu = rows.column("gpu")
    numbers: list[float] = np.unique(gpu[np.isfinite(gpu)]).tolist()
    return numbers


def _at_steps(name: str, t_s: Floats, values: Floats, rank: Rank) -> Scalar | None:
    """Samples before the first step are at step 0, those after the last at the last."""
    known = np.isfinite(values)
    t_s, values = t_s[known], values[known]
    if not len(t_s):
        return None
    begun_s = rank.steps.start_ns.astype(np.float64) * 1e-9
    numbers = np.append(0, rank.steps.index.astype(np.int64) + 1)
    every = -(-len(t_s) // MOST_POINTS)
    at = numbers[np.searchsorted(begun_s, t_s, side="right")]
    return _scalar(name, at[::every], _unix_s(rank, t_s)[::every], values[::every])


def _scalar(name: str, steps: NDArray[np.int64], unix_s: Floats, values: Floats) -> Scalar | None:
    known = np.isfinite(values)
    if not known.any():
        return None
    return Scalar(
        f"flatout/{name}",
        tuple(steps[known].tolist()),
        tuple(unix_s[known].tolist()),
        tuple(np.asarray(values, np.float64)[known].tolist()),
    )


def _unix_s(rank: Rank, t_s: Floats) -> Floats:
    """Calendar time of moments by the monotonic clock of the rank's host."""
    unix_ns, own_ns = (rank.recording.facts.get(name) for name in ("start_unix_ns", "start_ns"))
    ahead_s = (unix_ns - own_ns) * 1e-9 if isinstance(unix_ns, int) and isinstance(own_ns, int) else 0.0
    return np.asarray(t_s + ahead_s)
