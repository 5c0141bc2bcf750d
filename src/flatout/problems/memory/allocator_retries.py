"""torch's allocator ran out of GPU memory, freed its cache and tried again.

What it is: torch asked the driver for memory, was refused, freed all its cached blocks and tried again.

Why the GPU idles: freeing blocks waits until the device has finished everything, and the blocks have to be allocated
again in the steps that follow.

How it shows in a run: `num_alloc_retries` of torch's memory statistics above 0.

The fix: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, a smaller batch, or fewer different shapes (pad to a few
lengths). From outside `memory.checkpointing` holds fewer activations, and `batch.accumulate` runs the batch in parts;
both cost a second forward pass.

What to expect: no more such long steps. How long those are is not measured, so no gain is promised.

When it is fine: it happened once, in the search for the largest batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME704"
COMES_FROM = ("ME710",)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    retries = run.live_torch.get("alloc_retries")
    if not run.on_gpu or not retries:
        return
    per_step = retries / max(1, run.report.run.steps)
    yield FoundInRun(
        severity="high" if per_step >= 0.01 else "medium",
        evidence={"alloc_retries": int(retries), "retries_per_step": round(per_step, 5)},
        cause=message("me704.cause", retries=int(retries), steps=run.report.run.steps),
        change=message("me704.change"),
    )
