"""What detectors need to know of the machine: evaluations, memory by role, kernel kills, each GPU by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from flatout.diagnose.kernels import kernel_use
from flatout.diagnose.ranks import Floats, Rank, during_steps, keep_rows, mean_step_ms, reduce_known
from flatout.diagnose.source_text import evaluated_at
from flatout.diagnose.work import work_shares
from flatout.records.evidence import Evaluations, GpuState, OomKill
from flatout.records.report import PHASES, GpuUse, HostUse, KernelUse, LineCost
from flatout.records.sample import ROLES, THROTTLE_REASONS, Role, throttle_names
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

# The kernel's counter is read now and then: whoever was last seen this long before it moved may be the one it killed.
_KILLED_WITHIN_S = 3.0
_POWER_CAP = 0x004
# A reading of activity tells of the time before it.
_LOOKS_BACK_S = 0.4
_PARTS = 5
_TIMES = ("starved", "forward", "backward", "optimizer", "other", "step")
# Memory that is not ours but the driver's. Another process has a context of its own, which is more.
_NOBODY_ELSE_BYTES = 200 << 20
_MOSTLY = 0.9
_FEWEST_READINGS = 5
# Names a column may have, the one in use first.
_COLUMNS = {
    "util_percent": ("util_percent", "util_gpu_percent"),
    "own_util_percent": ("own_util_percent",),
    "power_w": ("power_w",),
    "power_limit_w": ("power_limit_w",),
    "sm_active": ("sm_active_share", "sm_active"),
    "tensor_active": ("tensor_active_share", "tensor_active"),
    "own_memory_bytes": ("own_memory_bytes",),
    "memory_used_bytes": ("memory_used_bytes",),
}


def evaluations(run: StoredRun, ranks: Sequence[Rank], lines: Sequence[LineCost]) -> Evaluations | None:
    """Those between the steady steps of the first rank; None without any."""
    if not ranks or not len(ranks[0].steady) or "eval" not in ranks[0].recording.phases:
        return None
    recording, steady = ranks[0].recording, ranks[0].steady
    start_ns, end_ns = recording.column("span", "start_ns"), recording.column("span", "end_ns")
    is_eval = recording.column("span", "phase") == recording.phases.index("eval")
    last_ns = int(steady.start_ns[-1]) + int(steady.wall_s[-1] * 1e9)
    inside = is_eval & (start_ns >= int(steady.start_ns[0])) & (end_ns <= last_ns)
    if not inside.any():
        return None
    took_s = (end_ns[inside] - start_ns[inside]).astype(np.float64) * 1e-9
    return Evaluations(int(inside.sum()), float(np.median(took_s)), evaluated_at(run, lines))


def memory_by_role(run: StoredRun, ranks: Sequence[Rank]) -> dict[str, tuple[Floats, Floats]]:
    """While training: resident bytes of all main processes, the mean of a loader worker, and how many of these."""
    rows = run.rows("processes")
    if rows is None or not len(rows.values):
        return {}
    # Memory that grows while modules are imported is no leak: a run with no sample in its steps has no trend.
    rows = during_steps(rows, ranks, or_all=False)
    t_s, role, rss = rows.column("t_s"), rows.column("role"), rows.column("rss_bytes")
    is_main, is_worker = role == ROLES.index("main"), role == ROLES.index("worker")
    found = {"main_rss_bytes": totals(t_s[is_main], rss[is_main])}
    moments, together = totals(t_s[is_worker], rss[is_worker])
    _, many = totals(t_s[is_worker], np.where(np.isfinite(rss[is_worker]), 1.0, np.nan))
    if len(moments):
        found["worker_rss_bytes"] = moments, together / many
        found["workers_alive"] = moments, many
    return {name: series for name, series in found.items() if len(series[0])}


def oom_kill(run: StoredRun) -> OomKill | None:
    """What the kernel killed for want of memory while the run lasted; None if nothing, or not known."""
    counts = run.rows("cgroup")
    if counts is None:
        return None
    kills, t_s = counts.column("oom_kills"), counts.column("t_s")
    known = np.isfinite(kills)
    kills, t_s = kills[known], t_s[known]
    if len(kills) < 2 or kills[-1] <= kills[0]:
        return None
    moved = int(np.argmax(kills > kills[0]))
    number = int(kills[-1] - kills[0])
    rows = run.rows("processes")
    victim = _gone(rows, float(t_s[moved - 1]) - _KILLED_WITHIN_S, float(t_s[moved])) if rows is not None else None
    return OomKill(number) if victim is None else OomKill(number, *victim)


def _gone(rows: Rows, since_s: float, until_s: float) -> tuple[Role, int, float] | None:
    """The largest process last seen in this time though others lived on; of all, if none did."""
    t_s, pid = rows.column("t_s"), rows.column("pid")
    if not len(t_s):
        return None
    last: dict[int, int] = {int(process): row for row, process in enumerate(pid.tolist())}
    gone = [row for row in last.values() if since_s <= t_s[row] <= until_s and t_s[row] < t_s[-1]]
    gone = gone or [row for row in last.values() if since_s <= t_s[row]]
    rss = np.nan_to_num(rows.column("rss_bytes"))
    row = max(gone, key=lambda row: rss[row], default=None)
    if row is None:
        return None
    role = rows.column("role")[row]
    name = ROLES[int(role)] if np.isfinite(role) else "other"
    return name, int(pid[row]), float(rss[row])


def gpu_states(run: StoredRun, ranks: Sequence[Rank]) -> tuple[GpuState, ...]:
    """The GPUs on which the run holds memory; all that were sampled, where that is not known."""
    rows = run.rows("gpu")
    if rows is None or not len(rows.values):
        return ()
    everything, counted, rows = rows, during_steps(rows, ranks, looks_back_s=_LOOKS_BACK_S), during_steps(rows, ranks)
    gpu, own = rows.column("gpu"), rows.column("own_memory_bytes")
    numbers = np.unique(gpu[own > 0]) if (own > 0).any() else np.unique(gpu)
    names = cast("list[str]", run.manifest.environment.get("gpus") or [])
    return tuple(
        _state(
            int(number), names, *(keep_rows(part, part.column("gpu") == number) for part in (rows, counted, everything))
        )
        for number in numbers
    )


def _state(number: int, names: Sequence[str], rows: Rows, counted: Rows, everything: Rows) -> GpuState:
    bits = rows.column("throttle_bits")
    known = bits[np.isfinite(bits)].astype(np.int64)
    slowing = {bit: float(((known & bit) > 0).mean()) for bit in THROTTLE_REASONS} if len(known) else {}
    clock = rows.column("sm_clock_mhz")
    hindered = np.array([bool(throttle_names(int(mask) & ~_POWER_CAP)) if mask >= 0 else False for mask in bits], bool)
    return GpuState(
        gpu=number,
        name=names[number] if number < len(names) else None,
        memory_total_bytes=reduce_known(rows.column("memory_total_bytes"), np.max),
        memory_used_bytes=reduce_known(rows.column("memory_used_bytes"), np.max),
        own_memory_bytes=reduce_known(rows.column("own_memory_bytes"), np.max),
        util_percent=reduce_known(rows.column("util_percent")),
        temperature_c=reduce_known(rows.column("temperature_c"), np.max),
        dram_active=reduce_known(counted.column("dram_active_share")),
        throttled={THROTTLE_REASONS[bit]: share for bit, share in slowing.items() if share and throttle_names(bit)},
        slowed_clock_mhz=reduce_known(clock[hindered], np.median),
        best_clock_mhz=reduce_known(everything.column("sm_clock_mhz"), np.max),
    )


def device_ms_by_rank(ranks: Sequence[Rank]) -> tuple[dict[str, float], ...]:
    """Milliseconds a step on each rank's own device, by phase; empty for a rank that timed none."""
    found = []
    for rank in ranks:
        columns = {name: rank.recording.column("device", f"{name}_ms") for name in _TIMES}
        means = {name: reduce_known(np.asarray(values, np.float64)) for name, values in columns.items()}
        found.append({name: mean for name, mean in means.items() if mean is not None})
    return tuple(found)


def parts_ms_by_rank(ranks: Sequence[Rank]) -> tuple[tuple[dict[str, float], ...], ...]:
    """Phases in milliseconds a step for each part of a rank's steady steps; nothing for a single rank."""
    if len(ranks) < 2:
        return ()
    found = []
    for rank in ranks:
        parts = np.array_split(np.arange(len(rank.steady)), _PARTS)
        found.append(tuple(_phase_ms(rank, part) for part in parts if len(part)))
    return tuple(found)


def _phase_ms(rank: Rank, part: Any) -> dict[str, float]:
    steps = float(rank.steady.count[part].sum()) or 1.0
    means = 1e3 * rank.steady.phase_s[part].sum(axis=0, dtype=np.float64) / steps
    return dict(zip(PHASES, means.tolist(), strict=True))


# How busy the GPU was: from the device timeline of sampled steps, and from what the parent process sampled.


def gpu_use(run: StoredRun, ranks: Sequence[Rank]) -> GpuUse | None:
    """None where there is no GPU, or nothing of it was measured."""
    rows = run.rows("gpu")
    rows = _own(during_steps(rows, ranks, looks_back_s=_LOOKS_BACK_S)) if rows is not None else None
    has_rows = rows is not None and len(rows.values) > 0
    timed = any(rank.recording.count("device") for rank in ranks)
    if not has_rows and not timed:
        return None
    column = {name: _sampled(rows, names) for name, names in _COLUMNS.items()}
    own, used = column["own_memory_bytes"], column["memory_used_bytes"]
    peak = reduce_known(own, np.max) if np.isfinite(own).any() else reduce_known(used, np.max)
    starved, drained, device_ms = _timeline(ranks)
    util = reduce_known(column["util_percent"])
    kernels, step_ms = kernel_use(ranks), mean_step_ms(ranks)
    is_alone = len(used) >= _FEWEST_READINGS and (used - own < _NOBODY_ELSE_BYTES).mean() > _MOSTLY
    return GpuUse(
        starved_share=starved,
        util_mean=util,
        util_spread=reduce_known(column["util_percent"], np.std),
        power_share=reduce_known(column["power_w"] / column["power_limit_w"]),
        sm_active=reduce_known(column["sm_active"]),
        tensor_active=reduce_known(column["tensor_active"]),
        memory_peak=None if peak is None else int(peak),
        drained_share=drained,
        device_ms=device_ms,
        busy_share=_busy_share(kernels, step_ms, util if is_alone else reduce_known(column["own_util_percent"])),
        kernels=kernels,
        work=work_shares(ranks),
    )


def _busy_share(kernels: KernelUse | None, step_ms: float | None, own_util: float | None) -> float | None:
    if kernels is not None and step_ms:
        return min(1.0, kernels.busy_ms / step_ms)
    return None if own_util is None else own_util / 100


def _sampled(rows: Rows | None, names: Sequence[str]) -> Floats:
    if rows is None:
        return np.empty(0)
    return rows.column(next((name for name in names if name in rows.columns), names[0]))


def _timeline(ranks: Sequence[Rank]) -> tuple[float | None, float | None, dict[str, float]]:
    """Starved share, drained share, and milliseconds a step on the device, over all ranks' sampled steady steps."""
    times: dict[str, list[Floats]] = {name: [] for name in _TIMES}
    boundaries = drained = 0.0
    for rank in ranks:
        recording = rank.recording
        if not recording.count("device") or not len(rank.steady):
            continue
        steady = recording.column("device", "index") >= rank.first_steady
        for name in _TIMES:
            times[name].append(np.asarray(recording.column("device", f"{name}_ms")[steady], np.float64))
        boundaries += float(np.nansum(recording.column("device", "boundaries")[steady]))
        drained += float(np.nansum(recording.column("device", "drained")[steady]))
    joined = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in times.items()}
    both = np.isfinite(joined["starved"]) & np.isfinite(joined["step"])
    step_ms = float(joined["step"][both].sum())
    starved = min(1.0, float(joined["starved"][both].sum()) / step_ms) if step_ms > 0 else None
    means = {name: reduce_known(values) for name, values in joined.items()}
    return starved, drained / boundaries if boundaries else None, {k: v for k, v in means.items() if v is not None}


def _own(rows: Rows) -> Rows:
    """Only the GPUs on which our processes hold memory, where that is known."""
    gpu, own = rows.column("gpu"), rows.column("own_memory_bytes")
    used = np.unique(gpu[own > 0])
    return keep_rows(rows, np.isin(gpu, used)) if len(used) else rows


# What the watched processes took of the host, from what the parent process sampled.


def host_use(run: StoredRun, ranks: Sequence[Rank]) -> HostUse | None:
    """None where no process was sampled. The peak is of the whole run: memory is also lost to an evaluation."""
    rows = run.rows("processes")
    if rows is None or not len(rows.values):
        return None
    pss, rss = rows.column("pss_bytes"), rows.column("rss_bytes")
    _, memory = totals(rows.column("t_s"), np.where(np.isfinite(pss), pss, rss))
    steady = during_steps(rows, ranks)
    _, cores = totals(steady.column("t_s"), steady.column("cpu_share"))
    return HostUse(
        cpu_cores=float(cores.mean()) if len(cores) else None,
        memory_peak=int(memory.max()) if len(memory) else None,
    )


def totals(t_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Moments of sampling and the sum over all rows of each; moments without any value are left out."""
    known = np.isfinite(values)
    if not known.any():
        return np.empty(0), np.empty(0)
    moments, moment = np.unique(t_s[known], return_inverse=True)
    return moments, np.bincount(moment, weights=values[known]).astype(np.float64)


def sampled_curves(
    run: StoredRun, wanted: Sequence[tuple[str, str, str, float]]
) -> Iterator[tuple[str, Floats, Floats]]:
    """By name, source, column and factor: name, moments and values.

    Of each GPU by itself, its number put into the name; of other sources the sum over all rows of a moment.
    """
    for name, source, column, factor in wanted:
        rows = run.rows(source)
        if rows is None or not len(rows.values):
            continue
        t_s, values = rows.column("t_s"), rows.column(column)
        if source != "gpu":
            moments, together = totals(t_s, values)
            yield name, moments, together * factor
            continue
        gpu = rows.column("gpu")
        for number in np.unique(gpu[np.isfinite(gpu)]).tolist():
            yield name.format(gpu=int(number)), t_s[gpu == number], values[gpu == number] * factor
