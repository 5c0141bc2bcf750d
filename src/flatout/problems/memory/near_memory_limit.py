"""The run's processes come close to the memory they may use.

What it is: the processes of the run together come close to what the container or the machine allows.

Why the GPU idles: near the limit the kernel drops the file cache, so every sample is read from disk again; beyond it
the kernel swaps, or kills a process: often a loader worker, and with it the run.

How it shows in a run: the peak of the processes' memory against the container's limit or the machine's memory.

The fix: fewer workers, a smaller `prefetch_factor`, a smaller cache (mind that a cache in the dataset exists once per
worker and rank), or narrower types in it.

What to expect: no gain in speed by itself, but room for the file cache and a run that reaches its end.

When it is fine: the memory is used on purpose, and the peak is behind you.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import amount, last_value, memory_limit
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME702"
COMES_FROM = ("ME705",)
_NEAR = 0.9
_DANGER = 0.95


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    limit, peak = memory_limit(run), _peak_bytes(run)
    if limit is None or peak is None or peak < _NEAR * limit.bytes:
        return
    workers, resident = last_value(run.series.get("workers_alive")), run.series.get("worker_rss_bytes")
    each = max(resident.values, default=0.0) if resident is not None else 0.0
    yield FoundInRun(
        severity="high" if peak >= _DANGER * limit.bytes else "medium",
        evidence={
            "peak_bytes": round(peak),
            "limit_bytes": round(limit.bytes),
            "peak_share": round(peak / limit.bytes, 3),
            "worker_processes": round(workers),
            "worker_resident_bytes": round(each),
        },
        cause=message("me702.cause", peak=amount(peak), limit=limit.words, size=amount(limit.bytes)),
        change=message("me702.change_workers" if workers else "me702.change"),
    )


def _peak_bytes(run: Evidence) -> float | None:
    """Of the run's processes; in a container also of all that is charged to it, less what the kernel can drop."""
    host = run.report.host
    own = float(host.memory_peak) if host is not None and host.memory_peak is not None else None
    used, cache = run.series.get("cgroup_memory_bytes"), run.series.get("cgroup_cache_bytes")
    if not run.report.environment.get("memory_limit_bytes") or used is None or cache is None:
        return own
    charged = max(a - b for a, b in zip(used.values, cache.values, strict=False))
    return max(own or 0.0, charged)
