"""Everything recorded of a run as plain tables: its steps, the device's sampled steps, and each source of telemetry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Rank, training_ranks
from flatout.diagnose.tracing import counted, offset_ns
from flatout.records.phases import PHASES
from flatout.records.sample import ROLES
from flatout.store.run import StoredRun

# Columns of equal length by name. NaN, and an empty text, are "not measured".
Table = dict[str, NDArray[Any]]

SOURCES = ("gpu", "host", "cores", "processes", "disks", "network", "cgroup")
_DEVICE = ("starved_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms", "step_ms", "boundaries", "drained")
_COUNTS = ("batches", "backwards", "syncs", "copies", "flags")


def tables(run: StoredRun) -> dict[str, Table]:
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
