"""Every epoch decodes the same samples again, and the CPUs cannot keep up.

What it is: every epoch reads and decodes the same samples again. All CPUs available for loading are busy, and it is not
enough: more workers would share the same CPUs.

Why the GPU idles: a step's samples take longer to load, on all workers together, than the step takes to compute.

How it shows in a run: time in `data`, busy workers that compute, as many as there are CPUs for, and each sample decoded
several times in the run.

The fix: compute the part that is the same each time once, and keep it: decoded and resized arrays in memory or a
memory-mapped file. Random augmentation stays after the cache. Do not evict: when each sample is read once an epoch, a
cache of a part of them that never evicts hits for that part, and no other policy hits more often.

What to expect: what was kept costs a copy instead of a decode. A run does not show how much of a sample is the same
each time: half is expected; the upper figure is for samples that can be kept whole.

When it is fine: the data fits in no memory, or the samples are generated at random. Under `flatout.cached` nothing is
reported: what it keeps is not computed again, whatever the rest of a sample costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, Workers
from flatout.model.measured import computing_share
from flatout.model.prediction import predict
from flatout.problems.found import FoundInRun
from flatout.problems.input.loading import (
    REPEATED,
    Feed,
    cheaper_batches,
    dearest_line,
    has_busy_workers,
    has_stragglers,
    part_in_memory,
    same_part,
    starving_feed,
    times_loaded,
    workers_for,
)
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message

CODE = "IN110"
REMEDY = "loader.cache"
COMES_FROM = ("IN103", "IN107", "IN114", "ME709")
_COMPUTES = 0.7
# What is read from a cache costs this part of the making.
_COPY = 0.05
# Part of a sample that is the same each time, where its lines do not tell. At worst, expected.
_SAME_AT_WORST, _SAME = 0.25, 0.5
# flatout's own cache, by the class of the dataset it stands before.
_CACHED = "feed.cache.dataset.CachedDataset"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = starving_feed(run)
    if feed is None:
        return
    use = feed.use
    # Without a sampler nothing says that an epoch takes each sample once.
    by_index = use.settings.get("sampler") is not None
    # A cache stands before the dataset already: what is still made for each epoch is what it may not keep.
    is_kept = any(remedy.id == REMEDY and remedy.state == "applied" for remedy in run.report.remedies)
    is_kept = is_kept or str(use.settings.get("dataset")).endswith(_CACHED)
    times = times_loaded(use) if by_index and not is_kept else None
    if times is None or times < REPEATED or not _at_the_limit(run, use) or has_stragglers(run, use):
        return
    kept = part_in_memory(run, use)
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "times_each_sample_was_made": round(times, 1),
            "sample_ms": round(feed.sample_ms, 3),
            "samples": int(use.settings["dataset_len"]),
            "cpus": run.cpus,
            "num_workers": use.workers,
            "part_that_fits_in_memory": round(kept, 3),
            **dearest_line(run),
        },
        cause=message(
            "in110.cause",
            samples=int(use.settings["dataset_len"]),
            times=times,
            sample_ms=feed.sample_ms,
            cpus=run.cpus,
        ),
        change=message("in110.change") if kept > 0.99 else message("in110.change_part", kept_share=kept),
        edits=_edits(run, feed, kept),
    )


def _at_the_limit(run: Evidence, use: LoaderUse) -> bool:
    """Making samples takes all the CPUs it may have: more workers would gain next to nothing."""
    if not use.workers:
        return False  # made in the main process: that comes first
    if not has_busy_workers(run, use) or computing_share(run, use) < _COMPUTES:
        return False
    more = workers_for(run, use)
    gain = predict(run, Edits((Workers(more),))) if more > use.workers else None
    return gain is None or gain.mid < 1.05


def _edits(run: Evidence, feed: Feed, kept: float) -> Edits:
    fetch_ms = feed.work_ms * feed.cost.fetch_ms_per_sample / feed.sample_ms
    same = same_part(run)
    worst, expected = (_SAME_AT_WORST, _SAME) if same is None else (_SAME * same, same)
    saved_ms = ((1 - _COPY) * kept * fetch_ms * part for part in (worst, expected, 1.0))
    return cheaper_batches(feed.work_ms, [feed.work_ms - ms for ms in saved_ms])
