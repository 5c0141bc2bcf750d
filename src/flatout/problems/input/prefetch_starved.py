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

from flatout.model.edits import Edits, Prefetch
from flatout.model.measured import without_waiting_ms
from flatout.problems.found import FoundInRun
from flatout.problems.input.loading import BUSY, busy_share, has_stragglers, starving_feed
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim

CODE = "IN112"
REMEDY = "loader.prefetch"
# A queue that is found empty this often, by workers that are idle for long, is too short.
_EMPTY = 0.05
_MOST_AHEAD = 32


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    feed, waiting = starving_feed(run), run.waiting
    if feed is None or not feed.use.workers or waiting is None or waiting.empty_share is None:
        return
    use = feed.use
    if waiting.empty_share < _EMPTY or has_stragglers(run, use):
        return
    busy, slowest_ms = busy_share(run, use), feed.cost.slowest_batch_ms
    # Batches ahead for each worker, so that together they last while the slowest batch is made.
    lasting = slowest_ms / max(without_waiting_ms(run), 1e-6) / use.workers
    ahead = min(_MOST_AHEAD, math.ceil(1.2 * lasting) + 1)
    now = int(use.settings.get("prefetch_factor") or 2)
    if busy is None or busy >= BUSY or ahead <= now:
        return
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
        edits=Edits((Prefetch(ahead),)),
    )
