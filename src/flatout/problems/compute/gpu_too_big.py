"""The kernels occupy only a small part of the GPU.

What it is: kernels follow each other without a gap, but each occupies only a few of the card's multiprocessors: a
small model, or a small batch.

Why the GPU idles: most of it does, though its utilisation looks perfect: utilisation means that some kernel runs,
however small.

How it shows in a run: the GPU never starves and its queue is hardly ever empty, and yet the multiprocessors are active
for a small part of the time (GPM's SM activity).

The fix: a larger batch while samples/s still rise (mind the learning rate), several runs on one card (MPS, MIG), or a
smaller card.

What to expect: a kernel takes about as long for twice the samples while there is room: samples/s rise nearly with the
batch.

When it is fine: the batch is what the training needs, and the card is not needed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessStep
from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "CO505"
REMEDY = "batch.size"
_SMALL = 0.25
_NEVER_DRAINED = 0.1


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    gpu = run.report.gpu
    if gpu is None or not is_gpu_bound(run) or gpu.sm_active is None or gpu.sm_active >= _SMALL:
        return
    # A host too slow to launch leaves the card as idle: then it is not the work that is too small.
    if (gpu.drained_share or 0.0) >= _NEVER_DRAINED or (gpu.util_mean or 0.0) < 80 or not run.samples_per_step:
        return
    times = 2 if gpu.sm_active > _SMALL / 2 else 4
    # The active part of the time grows with the batch, the rest does not.
    most = times / (1 + (times - 1) * gpu.sm_active)
    gains = (1 + part * (most - 1) for part in (0.4, 0.7, 1.0))
    yield FoundInRun(
        evidence={
            "sm_active": round(gpu.sm_active, 3),
            "util_percent": round(gpu.util_mean or 0.0, 1),
            "samples_per_step": round(run.samples_per_step, 1),
            "power_share": round(gpu.power_share or 0.0, 3),
        },
        cause=message("co505.cause", util=gpu.util_mean or 0, sm_active=gpu.sm_active),
        change=message("co505.change", more=times * run.samples_per_step, samples=run.samples_per_step),
        edits=Edits.between((LessStep(run.step_ms * (1 - 1 / gain)),) for gain in gains),
    )
