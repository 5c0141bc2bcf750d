"""The loader prefetches too few batches to bridge uneven batch times.

What it is: on average the workers are fast enough, but `prefetch_factor` lets them run ahead by too few batches: a slow
batch, or a burst of fast steps, uses up what is ready.

Why the GPU idles: it waits for a batch now, and the workers wait for something to do a moment later.

How it shows in a run: waits although the workers are idle for much of the time, an empty queue when a batch is
requested.

The fix: `prefetch_factor=N`, so that N batches per worker last as long as the slowest batch takes.

What to expect: the step gets as short as the slower of computing and the workers' mean speed.

When it is fine: memory does not allow more: each prefetched batch is held in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.problems.input.symptoms import has_stragglers
from flatout.problems.input.throughput import (
    BUSY,
    Loading,
    batch_ms,
    busy_share,
    epoch_start_ms,
    gain_at,
    starving_loader,
)
from flatout.problems.prediction import without_waiting_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim

CODE = "IN112"
REMEDY = "loader.prefetch"
# A queue that is found empty this often, by workers that are idle for long, is too short.
_EMPTY = 0.05
_MOST_AHEAD = 32


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use, waiting = starving_loader(run), run.waiting
    if use is None or not use.workers or waiting is None or waiting.empty_share is None:
        return
    if waiting.empty_share < _EMPTY or has_stragglers(run, use):
        return
    busy, work_ms = busy_share(run, use), batch_ms(run, use)
    slowest_ms = use.cost.slowest_batch_ms if use.cost is not None else 0.0
    # Batches ahead for each worker, so that together they last while the slowest batch is made.
    lasting = slowest_ms / max(without_waiting_ms(run), 1e-6) / use.workers
    ahead = min(_MOST_AHEAD, math.ceil(1.2 * lasting) + 1)
    now = int(use.settings.get("prefetch_factor") or 2)
    if busy is None or busy >= BUSY or work_ms is None or ahead <= now:
        return
    words = message("in112.gain", work_ms=work_ms, workers=use.workers)
    gain = gain_at(run, Loading(work_ms / use.workers, words, epoch_start_ms(run), caution=1.3))
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "prefetch_factor": now,
            "num_workers": use.workers,
            "workers_busy_share": round(busy, 3),
            "queue_empty_share": round(waiting.empty_share, 3),
            "slowest_batch_ms": round(slowest_ms, 1),
            "data_ms_per_step": round(run.phase("data").ms, 2),
            "batches_ahead": ahead,
        },
        cause=message(
            "in112.cause",
            empty_share=waiting.empty_share,
            idle_share=1 - busy,
            prefetch=now,
            slowest_ms=slowest_ms,
        ),
        change=verbatim(f"prefetch_factor={ahead}"),
        predicted_gain=gain,
    )
