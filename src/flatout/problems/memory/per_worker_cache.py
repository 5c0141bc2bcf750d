"""Every loader worker keeps its own growing memory.

What it is: the dataset keeps something of each sample (a cache, a list), and each worker process has a copy of the
dataset, so it is kept once for every worker and every rank.

Why the GPU idles: it does not, until memory runs out; and a cache per worker is hit only for samples that the same
worker happened to load before.

How it shows in a run: the resident memory of the workers rises over the second half of the run and does not level
off.

How it shows in source: `self.cache[index] = sample` in `__getitem__` or in what it calls, a cache class of your own
that does so, or `lru_cache` on a method that reads samples, in a dataset of a DataLoader with workers. A limit is one
for each worker as well.

The fix: one cache for all workers (shared memory, a memory-mapped file), with a bound that counts all workers; or
none. Under shuffling a cache that holds a part f of the samples and never evicts is hit f of the time: an LRU of that
size less.

What to expect: memory divided by the number of workers, and more hits for the same memory.

When it is fine: all workers together have room for all they will ever keep.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, loader_is_here
from flatout.problems.memory.growth import (
    DAY_S,
    TOO_FAR_S,
    Growth,
    amount,
    duration,
    lasting_growth,
    memory_limit,
    room_bytes,
)
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.source.code import Code
from flatout.source.loops import known_workers

CODE = "ME706"
_DANGEROUS = 0.5


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    growth, limit = lasting_growth(run.series.get("worker_rss_bytes")), memory_limit(run)
    alive = run.series.get("workers_alive")
    if growth is None or limit is None or alive is None:
        return
    workers = max(alive.values)
    room = room_bytes(run, limit.bytes)
    most = _most_bytes(run, growth, workers)
    left_s = room / (growth.bytes_per_s * workers)
    # All that the workers can ever keep fits well: no harm done.
    if left_s > TOO_FAR_S or (most is not None and most < _DANGEROUS * room):
        return
    use = run.training_loader
    yield FoundInRun(
        severity="high" if left_s < DAY_S else "medium",
        location=use.made_at if use is not None else None,
        evidence={
            "workers": round(workers),
            "bytes_per_s_each": round(growth.bytes_per_s),
            "gained_bytes_each": round(growth.gained_bytes),
            "limit_bytes": round(limit.bytes),
            "hours_left": round(left_s / 3600, 2),
            "most_bytes_all": round(most or 0.0),
        },
        cause=message(
            "me706.cause",
            workers=workers,
            per_minute=amount(growth.bytes_per_s * 60),
            limit=limit.words,
            size=amount(limit.bytes),
            left=duration(left_s),
        ),
        change=message("me706.change", workers=workers),
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


def in_source(code: Code) -> Iterator[FoundInSource]:
    for cache in code.caches:
        loaders = [made for made in cache.dataset.trains if known_workers(made, code) != 0]
        if not loaders:
            continue
        count = known_workers(loaders[0], code)
        several = count is not None and count > 1
        who = message("me706.each_of_workers", workers=count) if several else message("me706.each_worker")
        yield FoundInSource(
            severity="low" if cache.is_limited else "medium",
            title=message("me706.source_title"),
            place=cache.function.module.place(cache.node),
            cause=message(
                "me706.source_limited" if cache.is_limited else "me706.source_unlimited", who=who, cache=cache.name
            ),
            change=message("me706.source_change"),
            related=loader_is_here(loaders[0], "related.workers_loader"),
        )
