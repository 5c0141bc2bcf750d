"""One process drives several GPUs with DataParallel.

What it is: `torch.nn.DataParallel` splits each batch over the GPUs of one process, copies the model to each of them
in every forward pass, and gathers outputs and gradients on the first.

Why the GPU idles: one Python interpreter launches the work of all GPUs in turn, the copies come on top, and the first
GPU does the rest alone while the others wait.

How it shows in a run: one training process that holds memory on several GPUs, and `DataParallel(` in its source.

The fix: one process for each GPU: `torchrun --nproc-per-node N train.py`, with `DistributedDataParallel` and a
`DistributedSampler`.

What to expect: each GPU as busy as a single one would be. The range runs from a few per cent to what their
utilisation leaves.

When it is fine: a quick experiment; a model so large that the copies do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.prediction import by_step
from flatout.records.evidence import Evidence
from flatout.records.resources import GpuState

CODE = "RA904"
TITLE = "One process drives several GPUs with DataParallel"
# Even well fed GPUs are not busy all the time.
_REACHED = 0.95


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    busy = [state.util_percent / 100 for state in run.gpus if state.util_percent is not None]
    if run.data_parallel_at is None or run.report.run.ranks != 1 or len(run.gpus) < 2 or len(busy) < len(run.gpus):
        return
    share = sum(busy) / len(busy)
    # What idles now is idle for want of batches as well: only the rest of it is DataParallel's doing.
    rest_ms = run.step_ms - run.starved_ms
    best_ms = run.starved_ms + rest_ms * min(1.0, share / _REACHED)
    gain = by_step(run, run.step_ms - 0.25 * (run.step_ms - best_ms), 0.5 * (run.step_ms + best_ms), best_ms, _METHOD)
    if gain is None:
        return
    yield FoundInRun(
        location=run.data_parallel_at,
        evidence={
            "gpus": len(run.gpus),
            "util_percent_mean": round(100 * share, 1),
            "util_percent_least": round(100 * min(busy), 1),
        },
        cause=f"one process launches the work of {len(run.gpus)} GPUs, which are busy {share:.0%} of the time",
        change=f"torchrun --nproc-per-node {len(run.gpus)}, DistributedDataParallel and a DistributedSampler",
        predicted_gain=gain,
    )


_METHOD = "half of what the GPUs' utilisation leaves, waiting for batches aside"


def _gpus(*util: float) -> tuple[GpuState, ...]:
    return tuple(GpuState(number, util_percent=percent) for number, percent in enumerate(util))


CASES = (
    Case(
        "finds it when four GPUs share one process",
        run(gpu=on_gpu(), gpus=_gpus(60.0, 35.0, 35.0, 36.0), data_parallel_at=HERE),
        found=True,
    ),
    Case(
        "quiet when only one GPU is used",
        run(gpu=on_gpu(), gpus=_gpus(60.0), data_parallel_at=HERE),
        found=False,
    ),
    Case(
        "quiet when a model is spread over GPUs by hand",
        run(gpu=on_gpu(), gpus=_gpus(60.0, 35.0)),
        found=False,
    ),
)
