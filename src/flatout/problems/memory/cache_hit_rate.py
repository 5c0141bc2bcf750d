"""The dataset has a cache, but hardly any lookup hits.

What it is: the dataset keeps decoded samples, but hardly any lookup finds its sample. The cache evicts what will be
needed soonest (least-recently-used, when every sample comes once an epoch in random order), or it dies with its worker
at the end of each epoch, or every worker has its own and sees a sample again only by chance.

Why the GPU idles: samples are decoded again although memory is spent on keeping them, and the training waits for them.

How it shows in a run: the cache's own counters (`functools.lru_cache`, hits and misses of a class), or new keys at
every look into a dict of the dataset; every sample was decoded more than once, and the training waits for its batches.

How it shows in source: a cache that `__getitem__` fills under the sample's own index, in a dataset whose loader has
workers and no `persistent_workers`: it is gone before a sample comes again. Or one that evicts while the loader
shuffles.

The fix: keep, do not evict: with each sample once an epoch, a cache that holds a part of them and never evicts is hit
for that part, and no other policy gets more. One cache for all workers (shared memory, a memory-mapped file) holds as
much as all of theirs together. `persistent_workers=True` keeps it beyond an epoch; `lru_cache(maxsize=None)` never
evicts.

What to expect: hits for the part of the samples that all caches hold together. What part of a sample a hit saves is not
known: three quarters are assumed.

When it is fine: the samples arrive in time, or are generated at random.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, NoStarts
from flatout.problems.found import FoundInRun, FoundInSource, join_words
from flatout.problems.input.loading import (
    REPEATED,
    Feed,
    cheaper_batches,
    part_in_memory,
    same_part,
    sample_bound_feed,
    times_loaded,
)
from flatout.records.evidence import CacheUse, Evidence, LoaderUse
from flatout.records.message import Message, message, verbatim
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.loops import known_workers
from flatout.source.training.loaders import loader_setting

CODE = "ME709"
COMES_FROM = ("ME706",)
_SELDOM = 0.5
# So much more of what is asked for must be within reach.
_WITHIN_REACH = 0.15
# What a hit saves of a sample's making: at worst, expected where the sample's lines do not tell, at best.
_SAVED_AT_WORST, _SAVED, _SAVED_AT_BEST = 0.5, 0.75, 0.95


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = sample_bound_feed(run)
    times = times_loaded(feed.use) if feed is not None else None
    if feed is None or times is None or times < REPEATED:
        return
    use = feed.use
    for cache in sorted(run.caches, key=lambda lookup: -lookup.keys_per_sample):
        reach = _reach(run, use, cache)
        if not cache.evicts and not _dies(use, cache):
            continue  # it is filling: the next epoch will find what this one leaves
        if cache.hit_rate > _SELDOM or reach - cache.hit_rate < _WITHIN_REACH:
            continue
        yield _finding(use, cache, reach, _edits(run, feed, cache, reach))
        return


def _finding(use: LoaderUse, cache: CacheUse, reach: float, edits: Edits) -> FoundInRun:
    return FoundInRun(
        location=use.made_at,
        evidence={
            "cache": cache.name,
            "hit_rate": round(cache.hit_rate, 3),
            "hit_rate_within_reach": round(reach, 3),
            "entries_each": round(cache.entries),
            "entries_all_workers": round(cache.entries * max(1, use.workers)),
            "samples": int(use.settings["dataset_len"]),
            "asked_per_sample": round(cache.keys_per_sample, 2),
            "num_workers": use.workers,
            "started": cache.processes,
        },
        cause=message("me709.cause", cache=cache.name, hit_rate=cache.hit_rate, why=_why(use, cache)),
        change=_change(use, cache),
        edits=edits,
    )


def _dies(use: LoaderUse, cache: CacheUse) -> bool:
    """Workers were started several times, each with an empty cache."""
    return bool(use.workers) and cache.processes > use.workers and not use.settings.get("persistent_workers")


def _reach(run: Evidence, use: LoaderUse, cache: CacheUse) -> float:
    """Part of all keys that a cache keeps for which there is memory, in each worker one; all, where it has no limit."""
    if not cache.evicts and (cache.capacity is None or cache.entries < cache.capacity):
        return 1.0
    return max(_in_its_place(use, cache), part_in_memory(run, use) / max(1, use.workers))


def _in_its_place(use: LoaderUse, cache: CacheUse) -> float:
    """Part of all keys that one cache with the memory of all workers' caches would keep."""
    # At most: samples may share keys, then there are fewer.
    keys = int(use.settings["dataset_len"]) * max(1.0, cache.keys_per_sample)
    return min(1.0, (cache.capacity or cache.entries) * max(1, use.workers) / keys)


def _why(use: LoaderUse, cache: CacheUse) -> Message:
    if _dies(use, cache):
        return message("me709.emptied", starts=cache.processes)
    if use.workers > 1:
        return message("me709.evicts_in_workers", entries=cache.entries, workers=use.workers)
    return message("me709.evicts", entries=cache.entries)


def _change(use: LoaderUse, cache: CacheUse) -> Message:
    changes = []
    if _dies(use, cache):
        changes.append(verbatim("persistent_workers=True"))
    if cache.kind == "lru_cache" and (cache.evicts or cache.capacity):
        changes.append(message("me709.unbounded_lru"))
    elif cache.evicts:
        changes.append(message("me709.stop_adding"))
    if use.workers > 1:
        changes.append(message("me709.share", workers=use.workers))
    return join_words(changes or [message("me709.keep_all")])


def _edits(run: Evidence, feed: Feed, cache: CacheUse, reach: float) -> Edits:
    use, work_ms = feed.use, feed.work_ms
    fetch_ms = work_ms * feed.cost.fetch_ms_per_sample / feed.sample_ms
    # Of the samples made in full now, so many would be hits; what a key takes of memory is not known, so at worst only
    # those that the cache has room for now.
    likely, least = ((part - cache.hit_rate) / (1 - cache.hit_rate) for part in (reach, _in_its_place(use, cache)))
    same = same_part(run)
    expected = _SAVED if same is None else min(same, _SAVED_AT_BEST)
    shares = (min(_SAVED_AT_WORST, expected), expected, _SAVED_AT_BEST)
    mores = (max(0.0, min(least, likely)) if cache.evicts else likely, likely, likely)
    left = [work_ms - more * share * fetch_ms for more, share in zip(mores, shares, strict=True)]
    stays = (NoStarts(0.0),) if _dies(use, cache) else ()
    return cheaper_batches(work_ms, left, *stays)


def in_source(code: Code) -> Iterator[FoundInSource]:
    for cache in code.caches:
        if not cache.by_index or not cache.dataset.is_certain:
            continue  # what several samples share may well be asked for again in the same epoch
        for made in cache.dataset.trains:
            place, shuffle = made.place, loader_setting(made, "shuffle", code.values).value
            filled = Related(cache.function.module.place(cache.node), message("related.fills", name=cache.name))
            if known_workers(made, code) and loader_setting(made, "persistent_workers", code.values).is_off():
                yield FoundInSource(
                    place=place,
                    cause=message("me709.source_dies", cache=cache.name),
                    change=message("me709.source_dies_change"),
                    loader_setting="persistent_workers",
                    related=(filled,),
                )
            elif cache.throws_out and shuffle is not None and shuffle.value is True:
                yield FoundInSource(
                    severity="low",
                    place=filled.place,
                    cause=message("me709.source_evicts", cache=cache.name),
                    change=message("me709.source_evicts_change"),
                    related=(Related(place, message("related.shuffles")),),
                )
