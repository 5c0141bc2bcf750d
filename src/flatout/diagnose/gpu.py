"""How busy the GPU was: from the device timeline of sampled steps, and from what the parent process sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flatout.diagnose.ranks import Floats, Rank, during_steps
from flatout.records.report import GpuUse
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

# A reading tells of the time before it: activity since the reading before, utilisation by the driver's own window.
_LOOKS_BACK_S = 0.4
# Memory that is not ours but the driver's. Another process has a context of its own, which is more.
_NOBODY_ELSE_BYTES = 200 << 20
_MOSTLY = 0.9
_FEWEST_READINGS = 5
_TIMES = ("starved", "forward", "backward", "optimizer", "other", "step")


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
    peak = _max(own) if np.isfinite(own).any() else _max(used)
    starved, drained, device_ms = _timeline(ranks)
    util = _mean(column["util_percent"])
    is_alone = len(used) >= _FEWEST_READINGS and (used - own < _NOBODY_ELSE_BYTES).mean() > _MOSTLY
    return GpuUse(
        starved_share=starved,
        util_mean=util,
        util_spread=_spread(column["util_percent"]),
        power_share=_mean(column["power_w"] / column["power_limit_w"]),
        sm_active=_mean(column["sm_active"]),
        tensor_active=_mean(column["tensor_active"]),
        memory_peak=None if peak is None else int(peak),
        drained_share=drained,
        device_ms=device_ms,
        busy_share=util / 100 if is_alone and util is not None else None,
    )


# Names a column may have, the one in use first.
_COLUMNS = {
    "util_percent": ("util_percent", "util_gpu_percent"),
    "power_w": ("power_w",),
    "power_limit_w": ("power_limit_w",),
    "sm_active": ("sm_active_share", "sm_active"),
    "tensor_active": ("tensor_active_share", "tensor_active"),
    "own_memory_bytes": ("own_memory_bytes",),
    "memory_used_bytes": ("memory_used_bytes",),
}


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
        first = int(rank.steady.index[0]) - int(rank.steady.count[0]) + 1
        steady = recording.column("device", "index") >= first
        for name in _TIMES:
            times[name].append(np.asarray(recording.column("device", f"{name}_ms")[steady], np.float64))
        boundaries += float(np.nansum(recording.column("device", "boundaries")[steady]))
        drained += float(np.nansum(recording.column("device", "drained")[steady]))
    joined = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in times.items()}
    both = np.isfinite(joined["starved"]) & np.isfinite(joined["step"])
    step_ms = float(joined["step"][both].sum())
    starved = min(1.0, float(joined["starved"][both].sum()) / step_ms) if step_ms > 0 else None
    means = {name: _mean(values) for name, values in joined.items()}
    return starved, drained / boundaries if boundaries else None, {k: v for k, v in means.items() if v is not None}


def _own(rows: Rows) -> Rows:
    """Only the GPUs on which our processes hold memory, where that is known."""
    gpu, own = rows.column("gpu"), rows.column("own_memory_bytes")
    used = np.unique(gpu[own > 0])
    return Rows(rows.columns, rows.values[np.isin(gpu, used)], rows.lost) if len(used) else rows


def _mean(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _spread(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.std()) if len(finite) else None


def _max(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None
