"""Every loader worker keeps its own growing memory.

What it is: the dataset keeps something of each sample (a cache, a list), and each worker process has a copy of the
dataset, so it is kept once for every worker and every rank.

Why the GPU idles: it does not, until memory runs out; and a cache per worker is hit only for samples that the same
worker happened to load before.

How it shows in a run: the resident memory of the workers rises over the second half of the run and does not level
off.

The fix: one cache for all workers (shared memory, a memory-mapped file), with a bound that counts all workers; or
none. Under shuffling a cache that holds a part f of the samples and never evicts is hit f of the time: an LRU of that
size less.

What to expect: memory divided by the number of workers, and more hits for the same memory.

When it is fine: all workers together have room for all they will ever keep.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import Case, loader, run
from flatout.problems.found import FoundInRun
from flatout.problems.memory.growing import Growth, amount, duration, lasting_growth, memory_limit, room_bytes
from flatout.records.evidence import Evidence, Series

CODE = "ME706"
TITLE = "Every loader worker keeps its own growing memory"
_DAY_S = 86400.0
_TOO_FAR_S = 7 * _DAY_S
_DANGEROUS = 0.5


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    growth, limit = lasting_growth(run.series.get("worker_rss_bytes")), memory_limit(run)
    alive = run.series.get("workers_alive")
    if growth is None or limit is None or alive is None:
        return
    workers = max(alive.values)
    room = room_bytes(run, limit[0])
    most = _most_bytes(run, growth, workers)
    left_s = room / (growth.bytes_per_s * workers)
    # All that the workers can ever keep fits well: no harm done.
    if left_s > _TOO_FAR_S or (most is not None and most < _DANGEROUS * room):
        return
    use = run.training_loader
    yield FoundInRun(
        severity="high" if left_s < _DAY_S else "medium",
        location=use.made_at if use is not None else None,
        evidence={
            "workers": round(workers),
            "bytes_per_s_each": round(growth.bytes_per_s),
            "gained_bytes_each": round(growth.gained_bytes),
            "limit_bytes": round(limit[0]),
            "hours_left": round(left_s / 3600, 2),
            "most_bytes_all": round(most or 0.0),
        },
        cause=f"each of {workers:.0f} workers grows by {amount(growth.bytes_per_s * 60)} a minute; {limit[1]} of "
        f"{amount(limit[0])} is reached in {duration(left_s)}",
        change=f"keep samples once for all workers, not in the dataset; a bound holds per worker, so × {workers:.0f}",
        predicted_gain=None,
    )


def _most_bytes(run: Evidence, growth: Growth, workers: float) -> float | None:
    """What all workers hold once each has kept every sample; None where the dataset has no length."""
    use, rate = run.training_loader, run.report.throughput.samples_per_s
    length = use.settings.get("dataset_len") if use is not None else None
    if not length or not rate or use is None:
        return None
    if use.epochs > 2 and use.settings.get("persistent_workers"):
        return None  # every sample was met by now, and it grows still
    per_sample = growth.bytes_per_s * workers / rate
    return per_sample * float(length) * workers


def _series(per_s: float, ends_at_s: float = 60.0) -> dict[str, Series]:
    t_s = tuple(0.2 * i for i in range(300))
    values = tuple(5e8 + per_s * min(t, ends_at_s) for t in t_s)
    return {"worker_rss_bytes": Series(t_s, values), "workers_alive": Series(t_s, (4.0,) * 300)}


_MACHINE = {"memory_bytes": 64 << 30}
_FIRST_EPOCH = (loader(epochs=1, dataset_len=100_000),)
CASES = (
    Case(
        "finds it when a cache per worker will not fit",
        run(series=_series(20e6), environment=_MACHINE, loaders=_FIRST_EPOCH),
        found=True,
    ),
    Case("finds it when it grows epoch after epoch", run(series=_series(5e6), environment=_MACHINE), found=True),
    Case("quiet when it levels off", run(series=_series(20e6, 40.0), environment=_MACHINE), found=False),
    Case(
        "quiet when all of the data fits four times",
        run(series=_series(2e6), environment=_MACHINE, loaders=(loader(epochs=1, dataset_len=10_000),)),
        found=False,
    ),
)
