"""The loader's workers are too few to keep up with the training.

What it is: the DataLoader has workers, but together they produce samples more slowly than the training consumes them.

Why the GPU idles: every batch is requested before it is ready, and the device runs dry until it arrives.

How it shows in a run: time in `data`, an empty queue when a batch is requested, and workers busy nearly all the time.

The fix: `num_workers=N`. N is what keeps the training fed: the time of a sample times the samples a step, over the time
the rest of the step takes; no more than the CPUs less one for each training process, unless the workers mostly wait for
files: then they do not need a CPU each.

What to expect: the step shrinks to what is left of it, or to the loader's time shared by its workers, whichever is
longer.

When it is fine: all CPUs are busy already; then samples must get cheaper, as more workers would only share the same
CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, Workers
from flatout.model.measured import without_waiting_ms
from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import place_name
from flatout.problems.input.loading import (
    BUSY,
    busy_share,
    dearest_line,
    has_missing_workers,
    has_stragglers,
    is_storage_bound,
    starving_feed,
    workers_for,
)
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message, verbatim

CODE = "IN102"
REMEDY = "loader.workers"
HIDES = True


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed = starving_feed(run)
    if feed is None or not feed.use.workers:
        return
    use, work_ms = feed.use, feed.work_ms
    busy = busy_share(run, use)
    if busy is None or busy < BUSY or is_storage_bound(run, use) or has_stragglers(run, use):
        return
    if has_missing_workers(run):
        return  # said as what it is: a setting that went astray
    workers = workers_for(run, use)
    if workers <= use.workers:
        return
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "num_workers": use.workers,
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "loading_ms_per_step": round(work_ms, 2),
            "computing_ms_per_step": round(without_waiting_ms(run), 2),
            "workers_busy_share": round(busy, 3),
            "cpus": run.cpus,
            "workers": workers,
            **dearest_line(run),
        },
        cause=_cause(run, work_ms, use.workers),
        change=verbatim(f"num_workers={workers}"),
        edits=Edits((Workers(workers),)),
    )


def _cause(run: Evidence, work_ms: float, workers: int) -> Message:
    each_ms, computing_ms = work_ms / workers, without_waiting_ms(run)
    cause = message("in102.cause", work_ms=work_ms, each_ms=each_ms, workers=workers, computing_ms=computing_ms)
    setting = _set_by(run, workers)
    return cause if setting is None else message("in102.cause_with_setting", cause=cause, setting=setting)


def _set_by(run: Evidence, workers: int) -> Message | None:
    """Where a config says how many; and what the config that it builds on says."""
    setting = run.configured.setting("num_workers")
    if setting is None or setting.location is None or setting.value != workers:
        return None
    place, base = place_name(setting.location), setting.over
    if base is None or base.location is None:
        return message("in102.set_by", setting=setting.written, value=setting.value, place=place)
    return message(
        "in102.set_by_over",
        setting=setting.written,
        value=setting.value,
        place=place,
        base_value=base.value,
        base_place=place_name(base.location),
    )
