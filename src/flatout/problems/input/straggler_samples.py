"""A few samples take many times as long as the others, and their batches arrive late.

What it is: most samples load quickly, a few take many times as long: a huge image, a retry, a rejected sample, a cold
file. Batches are delivered in order, so batches that are ready wait for the slow one too.

Why the GPU idles: the batches before the slow one are used up before it is done; then nothing arrives.

How it shows in a run: most steps get their batch at once, a few wait far longer than a worker takes for a batch on
average; the slowest batch is many times the mean.

The fix: find the slow samples and make them as cheap as the others (resize or cache them beforehand, limit retries). A
larger `prefetch_factor` bridges them as far as memory allows; `DataLoader(..., in_order=False)` (torch 2.6 and later)
delivers other batches first, where the order of samples does not matter.

What to expect: the late waits disappear from the mean step.

When it is fine: the late batch is the first of the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from flatout.model.edits import Edits, EvenBatches
from flatout.model.measured import without_waiting_ms
from flatout.problems.found import FoundInRun
from flatout.problems.input.loading import has_stragglers, mean_batch_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import Message, message

CODE = "IN108"
# A larger prefetch_factor takes too much memory to be advised for a few samples.
_LARGEST_PREFETCH = 8


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use, waiting = run.training_loader, run.waiting
    if use is None or not use.workers or use.cost is None or waiting is None or not run.step_ms:
        return
    if not has_stragglers(run, use):
        return
    mean_ms = mean_batch_ms(run, use)
    yield FoundInRun(
        location=use.made_at,
        evidence={
            "mean_batch_ms": round(mean_ms, 1),
            "slowest_batch_ms": round(use.cost.slowest_batch_ms, 1),
            "late_steps_share": round(waiting.late_share, 4),
            "late_ms_per_step": round(waiting.late_ms, 2),
            "median_wait_ms": round(waiting.median_ms, 2),
        },
        cause=message(
            "in108.cause",
            late_share=waiting.late_share,
            slowest_ms=use.cost.slowest_batch_ms,
            mean_ms=mean_ms,
            late_ms=waiting.late_ms,
            step_ms=run.step_ms,
        ),
        change=_change(run, use),
        edits=Edits((EvenBatches(),)),
    )


def _change(run: Evidence, use: LoaderUse) -> Message:
    change = message("in108.change")
    slowest_ms = use.cost.slowest_batch_ms if use.cost is not None else 0.0
    # So many batches are used up while the slowest is made.
    bridge = math.ceil(slowest_ms / max(without_waiting_ms(run), 1e-6) / use.workers) + 1
    now = int(use.settings.get("prefetch_factor") or 2)
    bridges = now < bridge <= _LARGEST_PREFETCH
    return message("in108.change_prefetch", change=change, prefetch=bridge) if bridges else change
