"""The host launches kernels more slowly than the GPU runs them.

What it is: forward, backward and optimizer consist of many small kernels, and the host takes longer to launch them
than the GPU to run them.

Why the GPU idles: between two kernels there is nothing in its queue.

How it shows in a run: the GPU's queue is found empty at most boundaries although no batch is awaited, and the GPU
computes for only a part of the time that the host spends in forward, backward and optimizer.

The fix: fewer launches. `model = torch.compile(model)` fuses small operations; `mode="reduce-overhead"` replays the
whole pass as a CUDA graph where shapes stay the same; `fused=True` makes the optimizer a few launches; a larger batch
gives each launch more to do. From outside `compile.model` does the first, and `graphs.model` replays forward and
backward as CUDA graphs without compiling.

What to expect: fusion removes about half of the time in which the GPU waits for launches. A CUDA graph removes all of
it in theory; in practice gradients, loss and optimizer are still launched one by one, and two thirds were measured to
go.

When it is fine: the host's time is hidden behind the GPU's, or a Python loop, anomaly mode or graph breaks are the
cause, which have findings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edits, LessHost
from flatout.model.measured import device_work_ms
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim

CODE = "HO401"
REMEDY = "compile.model"
COMES_FROM = (
    *("HO402", "HO403", "HO404", "HO405", "HO406", "HO407", "HO411"),
    *("SY304", "SY305", "TR202", "CO512", "CO520"),
)
# From this share of looks on, a device that has nothing in its queue follows the host.
DRY = 0.5
# Idle time between launches, as a share of the step: below it neither compiling nor a graph is worth its trouble.
WORTH_LAUNCHING = 0.15
PASSES = ("forward", "backward", "optimizer")
# Of the time in which the device waits for launches, fusion removes about half; graphs of the passes alone removed 65%
# of it on an H200, and one of the whole step would nearly all.
_SPARED = (0.25, 0.6, 0.95)


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    work_ms, gpu = device_work_ms(run), run.report.gpu
    if not run.on_gpu or gpu is None or work_ms is None:
        return
    if (run.drained_share or 0.0) < DRY and (gpu.busy_share is None or gpu.busy_share >= 1 - DRY):
        return
    passes_ms = sum(run.phase(name).ms for name in PASSES)
    idle_ms = passes_ms - work_ms
    if idle_ms < WORTH_LAUNCHING * run.step_ms:
        return
    compiled = bool(run.live_torch.get("compiled"))
    yield FoundInRun(
        evidence={
            "passes_ms_per_step": round(passes_ms, 2),
            "device_computes_ms_per_step": round(work_ms, 2),
            "drained_share": round(run.drained_share or 0.0, 3),
            **({} if gpu.sm_active is None else {"sm_active": round(gpu.sm_active, 3)}),
            "compiled": "yes" if compiled else "no",
        },
        cause=message("ho401.cause", passes_ms=passes_ms, step_ms=run.step_ms, work_ms=work_ms),
        change=verbatim('torch.compile(model, mode="reduce-overhead")') if compiled else message("ho401.change"),
        edits=Edits.between((LessHost(part * idle_ms, is_sampled=False),) for part in _SPARED),
    )
