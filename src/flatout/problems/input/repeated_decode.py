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

from flatout.problems.found import FoundInRun
from flatout.problems.input.symptoms import dearest_line, has_stragglers, same_part
from flatout.problems.input.throughput import (
    REPEATED,
    batch_ms,
    computing_share,
    epoch_start_ms,
    gain_with_workers,
    handover_ms,
    has_busy_workers,
    starving_loader,
    times_loaded,
    workers_for,
)
from flatout.problems.prediction import by_step, without_waiting_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import message
from flatout.records.report import Gain

CODE = "IN110"
REMEDY = "loader.cache"
COMES_FROM = ("IN103", "IN107", "IN114", "ME709")
_COMPUTES = 0.7
# Of the memory that is left, a cache may take this much; what is read from it costs this part of the making.
_MEMORY = 0.5
_COPY = 0.05
# Workers that no longer take every processor let the training compute a little faster.
_UNCROWDED = 0.9
# Part of a sample that is the same each time, where its lines do not tell. At worst, expected.
_SAME_AT_WORST, _SAME = 0.25, 0.5
# flatout's own cache, by the class of the dataset it stands before.
_CACHED = "feed.cache.dataset.CachedDataset"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = starving_loader(run)
    if use is None or use.cost is None:
        return
    # Without a sampler nothing says that an epoch takes each sample once.
    by_index = use.settings.get("sampler") is not None
    # A cache stands before the dataset already: what is still made for each epoch is what it may not keep.
    is_kept = any(remedy.id == REMEDY and remedy.state == "applied" for remedy in run.report.remedies)
    is_kept = is_kept or str(use.settings.get("dataset")).endswith(_CACHED)
    times = times_loaded(use) if by_index and not is_kept else None
    if times is None or times < REPEATED or not _at_the_limit(run, use) or has_stragglers(run, use):
        return
    kept = _kept_part(run, use)
    gain = _gain(run, use, kept)
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "times_each_sample_was_made": round(times, 1),
            "sample_ms": round(use.sample_ms or 0.0, 3),
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
            sample_ms=use.sample_ms or 0.0,
            cpus=run.cpus,
        ),
        change=message("in110.change") if kept > 0.99 else message("in110.change_part", kept_share=kept),
        predicted_gain=gain,
    )


def _at_the_limit(run: Evidence, use: LoaderUse) -> bool:
    """Making samples takes all the CPUs it may have: more workers would gain next to nothing."""
    if not use.workers:
        return False  # made in the main process: that comes first
    if not has_busy_workers(run, use) or computing_share(run, use) < _COMPUTES:
        return False
    more = workers_for(run, use)
    gain = gain_with_workers(run, use, more, epoch_start_ms(run)) if more > use.workers else None
    return gain is None or gain.mid < 1.05


def _kept_part(run: Evidence, use: LoaderUse) -> float:
    """Part of the samples that fits in memory, by the bytes that go to the device; all, where those are not known."""
    per_step = sum(site.bytes_per_step for site in run.report.copies)
    limits = [run.report.environment.get(name) for name in ("memory_limit_bytes", "memory_bytes")]
    limit = min((float(limit) for limit in limits if isinstance(limit, int | float)), default=0.0)
    if not per_step or not limit or not run.samples_per_step or run.report.host is None:
        return 1.0
    free = _MEMORY * max(0.0, limit - (run.report.host.memory_peak or 0))
    return min(1.0, free / (per_step / run.samples_per_step * int(use.settings["dataset_len"])))


def _gain(run: Evidence, use: LoaderUse, kept: float) -> Gain | None:
    work_ms, cost = batch_ms(run, use), use.cost
    if work_ms is None or cost is None:
        return None
    fetch_ms = work_ms * cost.fetch_ms_per_sample / max(use.sample_ms or 0.0, 1e-9)

    def step_ms(part: float) -> float:
        saved_ms = part * (1 - _COPY) * fetch_ms
        # Processors the workers no longer take are the training's own again, so their old work is no bound here.
        fed_ms = without_waiting_ms(run) + (0.0 if run.on_gpu else _UNCROWDED * handover_ms(run))
        return max(_UNCROWDED * fed_ms, (work_ms - saved_ms) / use.workers) + epoch_start_ms(run, saved_ms)

    same = same_part(run)
    worst, expected = (_SAME_AT_WORST, _SAME) if same is None else (_SAME * same, same)
    method = message("in110.gain", kept_share=kept, same_share=expected, fetch_ms=cost.fetch_ms_per_sample)
    return by_step(run, step_ms(worst * kept), step_ms(expected * kept), step_ms(kept), method)
