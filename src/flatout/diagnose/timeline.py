"""A run over time for the charts of a report: what the steps did, and what was sampled beside them.

Times are of the first rank's host. Other ranks took the same steps, and clocks of several hosts do not agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Floats, Rank, Steps, keep_rows, reduce_known, training_ranks
from flatout.diagnose.resources import totals
from flatout.records.report import PHASES
from flatout.records.sample import ROLES
from flatout.records.timeline import Curves, Mark, ProcessUse, StepTimes, Timeline
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

_MARKED = ("eval", "checkpoint")
# More marks than this are one smear; those that lie close are drawn as one.
_MOST_MARKS = 400
_MOST_PROCESSES = 40
_BINS = 60
# A chart is about as many pixels wide.
BUCKETS = 800


def make_timeline(run: StoredRun) -> Timeline:
    """Everything a report draws over time. Needs neither torch nor a GPU."""
    ranks = training_ranks(run)
    begin_s = _begin_s(run, ranks)
    curves: dict[str, Curves | None] = {}
    if ranks:
        curves |= _of_steps(ranks[0].steps, begin_s)
        curves["starved"] = _starved(ranks[0], begin_s)
    gpus, of_gpus = _gpus(run, begin_s)
    curves |= of_gpus
    curves["memory"] = _memory(run, begin_s)
    curves["cpu"] = _processors(run, begin_s)
    curves["disk"] = _disk(run, begin_s)
    curves |= _by_role(run, begin_s)
    drawn = {name: curve for name, curve in curves.items() if curve is not None and curve.values}
    processes = _processes(run, begin_s)
    return Timeline(
        end_s=max((curve.t_s[-1] for curve in drawn.values() if curve.t_s), default=0.0),
        curves=drawn,
        limits=_limits(run),
        marks=_marks(ranks[0], begin_s) if ranks else (),
        processes=tuple(processes[:_MOST_PROCESSES]),
        more_processes=max(0, len(processes) - _MOST_PROCESSES),
        step_times=_step_times(ranks),
        gpus=gpus,
    )


def _begin_s(run: StoredRun, ranks: Sequence[Rank]) -> float:
    """The first moment that anything was recorded at."""
    moments = [float(rows.values[0, 0]) for source in ("host", "gpu") if (rows := _rows(run, source)) is not None]
    for rank in ranks[:1]:
        first_ns = int(rank.steps.start_ns[0])
        moments.append(min(rank.started_ns or first_ns, first_ns) * 1e-9)
    return min(moments, default=0.0)


def _rows(run: StoredRun, source: str) -> Rows | None:
    rows = run.rows(source)
    return rows if rows is not None and len(rows.values) else None


# The steps.


def _of_steps(steps: Steps, begin_s: float) -> dict[str, Curves | None]:
    t_s = steps.start_ns.astype(np.float64) * 1e-9 - begin_s
    step_ms = 1e3 * steps.wall_s / steps.count
    starts = bucket_starts(len(steps))
    wall_s = np.maximum(np.add.reduceat(steps.wall_s, starts), 1e-12)
    shares = {
        name: np.add.reduceat(steps.phase_s[:, column].astype(np.float64), starts) / wall_s
        for column, name in enumerate(PHASES)
        if steps.phase_s[:, column].any()
    }
    known = np.isfinite(steps.samples)
    rate = np.add.reduceat(np.where(known, steps.samples, 0.0), starts) / wall_s
    return {
        "step": peaks(t_s, {"step_ms": step_ms}),
        "phases": means(t_s, starts, shares),
        "rate": means(t_s, starts, {"samples_per_s": rate}) if known.mean() > 0.5 else None,
        "queue": peaks(t_s, {"batches_ready": steps.queue_depth}),
    }


def _starved(rank: Rank, begin_s: float) -> Curves | None:
    """On the device's own timeline, for the steps that were looked at."""
    recording, steps = rank.recording, rank.steps
    if not recording.count("device"):
        return None
    at = np.searchsorted(steps.index, recording.column("device", "index")).clip(0, len(steps) - 1)
    step_ms = np.asarray(recording.column("device", "step_ms"), np.float64)
    share = np.asarray(recording.column("device", "starved_ms"), np.float64) / np.where(step_ms > 0, step_ms, np.nan)
    t_s = steps.start_ns[at].astype(np.float64) * 1e-9 - begin_s
    return peaks(t_s, {"starved": np.minimum(share, 1.0)})


def _marks(rank: Rank, begin_s: float) -> tuple[Mark, ...]:
    recording = rank.recording
    phase = recording.column("span", "phase")
    start_s = recording.column("span", "start_ns").astype(np.float64) * 1e-9 - begin_s
    end_s = recording.column("span", "end_ns").astype(np.float64) * 1e-9 - begin_s
    found: list[Mark] = []
    for name in _MARKED:
        chosen = phase == recording.phases.index(name) if name in recording.phases else np.zeros(len(phase), bool)
        found += _told_apart(name, start_s[chosen], end_s[chosen])
    return tuple(sorted(found, key=lambda mark: mark.start_s))


def _told_apart(name: str, start_s: Floats, end_s: Floats) -> list[Mark]:
    starts = bucket_starts(len(start_s), _MOST_MARKS // len(_MARKED))
    if not len(starts):
        return []
    counts = np.diff(np.append(starts, len(start_s)))
    begins, ends = np.minimum.reduceat(start_s, starts), np.maximum.reduceat(end_s, starts)
    return [Mark(name, round(a, 3), round(b, 3), int(n)) for a, b, n in zip(begins, ends, counts.tolist(), strict=True)]


def _step_times(ranks: Sequence[Rank]) -> StepTimes | None:
    each = [1e3 * rank.steady.wall_s / rank.steady.count for rank in ranks if len(rank.steady)]
    step_ms = np.concatenate(each) if each else np.empty(0)
    step_ms = step_ms[step_ms > 0]
    if not len(step_ms):
        return None
    low, high = float(step_ms.min()), float(step_ms.max())
    edges = np.geomspace(low, max(high, low * 1.01), _BINS + 1)
    counts, _ = np.histogram(step_ms, edges)
    median, p95, p99 = np.percentile(step_ms, (50, 95, 99)).tolist()
    return StepTimes(median, p95, p99, high, tuple(edges.tolist()), tuple(counts.tolist()))


# What was sampled beside them.


def _processors(run: StoredRun, begin_s: float) -> Curves | None:
    rows = _rows(run, "host")
    if rows is None:
        return None
    shares = {"machine": rows.column("cpu_share"), "iowait": rows.column("iowait_share")}
    return peaks(rows.column("t_s") - begin_s, shares)


def _gpus(run: StoredRun, begin_s: float) -> tuple[int, dict[str, Curves | None]]:
    """The mean over the GPUs on which the run holds memory; over all, where that is not known."""
    rows = _rows(run, "gpu")
    if rows is None:
        return 0, {}
    gpu, own = rows.column("gpu"), rows.column("own_memory_bytes")
    used = np.unique(gpu[own > 0]) if (own > 0).any() else np.unique(gpu)
    rows = keep_rows(rows, np.isin(gpu, used))
    t_s = rows.column("t_s")
    moments = np.unique(t_s)
    limit_w = rows.column("power_limit_w")
    charts = {
        "gpu": {
            "util": rows.column("util_percent") / 100.0,
            "power": rows.column("power_w") / np.where(limit_w > 0, limit_w, np.nan),
            "sm": rows.column("sm_active_share"),
            "tensor": rows.column("tensor_active_share"),
        }
    }
    charts["gpu_memory"] = {
        "own": rows.column("own_memory_bytes"),
        "everybody": rows.column("memory_used_bytes"),
    }
    return len(used), {
        chart: peaks(moments - begin_s, {name: _at(moments, t_s, values) for name, values in columns.items()})
        for chart, columns in charts.items()
    }


def _at(moments: Floats, t_s: Floats, values: Floats, mean: bool = True) -> Floats:
    """The mean (or sum) of what was read at each moment; NaN where nothing was."""
    known = np.isfinite(values)
    at = np.searchsorted(moments, t_s[known])
    sums = np.bincount(at, weights=values[known], minlength=len(moments))
    counts = np.bincount(at, minlength=len(moments))
    found = sums / np.maximum(counts, 1) if mean else sums
    return np.asarray(np.where(counts > 0, found, np.nan))


def _moments(*sources: Rows | None) -> Floats:
    """When any of them was read; none where there is none of them."""
    return np.unique(np.concatenate([np.empty(0), *(rows.column("t_s") for rows in sources if rows is not None)]))


def _memory(run: StoredRun, begin_s: float) -> Curves | None:
    """What the run's processes hold, and what of the container or machine is in use, without the page cache."""
    host, cgroup, processes = _rows(run, "host"), _rows(run, "cgroup"), _rows(run, "processes")
    moments = _moments(host, cgroup, processes)
    found: dict[str, Floats] = {}
    if processes is not None:
        pss = processes.column("pss_bytes")
        # PSS is read seldom; between its readings RSS, which counts shared pages more than once, would look like jumps.
        held = pss if np.isfinite(pss).any() else processes.column("rss_bytes")
        found["run"] = _at(moments, *totals(processes.column("t_s"), held))
    if cgroup is not None and np.isfinite(cgroup.column("memory_limit_bytes")).any():
        in_use = cgroup.column("memory_current_bytes") - np.nan_to_num(cgroup.column("memory_cache_bytes"))
        found["container"] = _at(moments, cgroup.column("t_s"), in_use)
    elif host is not None:
        in_use = host.column("memory_total_bytes") - host.column("memory_available_bytes")
        found["machine"] = _at(moments, host.column("t_s"), in_use)
    return peaks(moments - begin_s, found)


def _disk(run: StoredRun, begin_s: float) -> Curves | None:
    disks, network = _rows(run, "disks"), _rows(run, "network")
    moments = _moments(disks, network)
    found: dict[str, Floats] = {}
    for prefix, rows in (("disk", disks), ("network", network)):
        for name in ("read", "write"):
            values = None if rows is None else rows.column(f"{name}_bytes_per_s")
            # A network disk that is never used is no curve.
            if rows is not None and values is not None and (prefix == "disk" or np.nansum(values) > 0):
                found[f"{prefix}_{name}"] = _at(moments, *totals(rows.column("t_s"), values))
    return peaks(moments - begin_s, found)


def _by_role(run: StoredRun, begin_s: float) -> dict[str, Curves | None]:
    """Cores and memory of the process tree: the training itself, a loader's workers, everything else."""
    rows = _rows(run, "processes")
    if rows is None:
        return {}
    t_s, role = rows.column("t_s"), rows.column("role")
    moments = np.unique(t_s)
    found: dict[str, Curves | None] = {}
    for chart, column in (("tree_cpu", "cpu_share"), ("tree_memory", "rss_bytes")):
        values = rows.column(column)
        parts: dict[str, Floats] = {
            name: _at(moments, t_s[role == number], values[role == number], mean=False)
            for number, name in enumerate(ROLES)
            if (role == number).any()
        }
        found[chart] = peaks(moments - begin_s, parts)
    return found


def _processes(run: StoredRun, begin_s: float) -> list[ProcessUse]:
    """The busiest of each role first. Workers that every epoch starts anew may be thousands."""
    rows = _rows(run, "processes")
    if rows is None:
        return []
    # Together by process, in order of time.
    order = np.argsort(rows.column("pid"), kind="stable")
    rows = Rows(rows.columns, rows.values[order], rows.lost)
    pids, first = np.unique(rows.column("pid"), return_index=True)
    last = np.append(first[1:], len(order)) - 1
    pss, rss = (np.fmax.reduceat(rows.column(name), first) for name in ("pss_bytes", "rss_bytes"))
    columns = {
        "cpu_cores": _means(rows.column("cpu_share"), first),
        "memory_peak_bytes": np.where(np.isfinite(pss), pss, rss),
        "read_bytes_per_s": _means(rows.column("read_bytes_per_s"), first),
        "threads": np.fmax.reduceat(rows.column("threads"), first),
    }
    t_s, role = rows.column("t_s") - begin_s, rows.column("role")[last]
    found = [
        ProcessUse(
            pid=int(pid),
            role=ROLES[int(role[n])] if np.isfinite(role[n]) else "other",
            first_s=float(t_s[first[n]]),
            last_s=float(t_s[last[n]]),
            **{name: float(values[n]) if np.isfinite(values[n]) else None for name, values in columns.items()},
        )
        for n, pid in enumerate(pids.tolist())
    ]
    names: tuple[str, ...] = ROLES
    return sorted(found, key=lambda role: (names.index(role.role), -(role.cpu_cores or 0.0)))


def _means(values: Floats, first: NDArray[Any]) -> Floats:
    """Of each stretch that begins there, over what was measured; NaN where nothing was."""
    known = np.isfinite(values)
    sums, counts = np.add.reduceat(np.where(known, values, 0.0), first), np.add.reduceat(known.astype(np.int64), first)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _limits(run: StoredRun) -> dict[str, float]:
    environment = run.manifest.environment
    known = [environment.get(name) for name in ("memory_limit_bytes", "memory_bytes")]
    limits = [float(limit) for limit in known if isinstance(limit, int | float) and limit > 0 and math.isfinite(limit)]
    found = {"memory": min(limits)} if limits else {}
    gpu = _rows(run, "gpu")
    whole = None if gpu is None else reduce_known(gpu.column("memory_total_bytes"), np.max)
    if whole is not None:
        found["gpu_memory"] = whole
    return found


# Makes a curve of a million points small enough to draw, without losing a peak. The points are cut into buckets of
# equal number. Of each bucket the lowest and the highest value stay, so that one slow step in a million is still
# seen. A point may move within its bucket, which is a thousandth of the run.


def bucket_starts(count: int, buckets: int = BUCKETS) -> NDArray[Any]:
    """Where each bucket begins; none for no points."""
    return np.unique(np.linspace(0, count, min(count, buckets), endpoint=False).astype(np.int64))


def peaks(t_s: Floats, values: Mapping[str, Floats]) -> Curves | None:
    """The curves with the lowest and highest of each bucket; curves without any value are left out."""
    known = {name: column for name, column in values.items() if np.isfinite(column).any()}
    if not known or not len(t_s):
        return None
    if len(t_s) <= 2 * BUCKETS:
        return Curves(_times(t_s), {name: _rounded(column) for name, column in known.items()})
    starts = bucket_starts(len(t_s))
    middles = (starts + np.append(starts[1:], len(t_s))) // 2
    moments = np.column_stack([t_s[starts], t_s[middles]]).ravel()
    # fmin and fmax pass over NaN as long as there is a number.
    pairs = {
        name: np.column_stack([np.fmin.reduceat(column, starts), np.fmax.reduceat(column, starts)]).ravel()
        for name, column in known.items()
    }
    return Curves(_times(moments), {name: _rounded(column) for name, column in pairs.items()})


def means(t_s: Floats, starts: NDArray[Any], values: Mapping[str, Floats]) -> Curves | None:
    """Curves that have one value a bucket already."""
    if not len(starts) or not values:
        return None
    return Curves(_times(t_s[starts]), {name: _rounded(column) for name, column in values.items()})


def _times(t_s: Floats) -> tuple[float, ...]:
    return tuple(round(moment, 3) for moment in t_s.tolist())


def _rounded(values: Floats) -> tuple[float | None, ...]:
    """Four figures are more than a chart can show, and a third of the bytes."""
    return tuple(
        float(f"{value:.4g}") if value == value and abs(value) != np.inf else None for value in values.tolist()
    )
