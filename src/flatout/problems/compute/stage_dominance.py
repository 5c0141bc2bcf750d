"""One stage of the model takes most of the step.

What it is: of the parts the model consists of, a single one takes more than half of the step, forward and backward
together: a decoder at full resolution, an attention over too long a sequence, a head with a huge vocabulary.

Why the GPU idles: it does not; it is busy with that one stage. Nothing outside of it can make the step more than a
little shorter, and changes to the loader cannot at all.

How it shows in a run: only where stages were asked for (`flatout run --stages`): the time of each on the GPU, against
the step, in a run whose bottleneck is its own computing.

The fix: look at that stage first: its resolution, its precision, its kernels (a profiler now has one place to look at),
whether all of it is needed in every step. What is done to the other stages is bounded by the rest.

What to expect: Amdahl's law, in the table of stages: what the step would gain if the stage took half the time, or none.
That is a bound and no promise, so no gain is predicted.

When it is fine: the stage is the model, as in most large transformers. This is a place to look at, not a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.compute.device import is_gpu_bound
from flatout.problems.found import FoundInRun
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "CO508"
_MOST = 0.5
# With fewer stages one of them is bound to be large.
_FEWEST_STAGES = 3
_FEWEST_SAMPLES = 4
# On a CPU, the part of the step that is passes and optimizer, from which computing is the bottleneck.
_COMPUTES = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    stages = [stage for stage in run.report.stages or () if stage.share is not None]
    passes = sum(run.phase(name).share for name in ("forward", "backward", "optimizer"))
    binds = is_gpu_bound(run) if run.on_gpu else passes >= _COMPUTES
    if len(stages) < _FEWEST_STAGES or not binds:
        return
    top = max(stages, key=lambda stage: stage.share or 0.0)
    if (top.share or 0.0) <= _MOST or top.samples < _FEWEST_SAMPLES:
        return
    second = sorted(stages, key=lambda stage: -(stage.share or 0.0))[1]
    yield FoundInRun(
        severity="low",
        evidence={
            "stage": top.name,
            "module": top.module,
            "share": round(top.share or 0.0, 3),
            "forward_ms": round(top.forward_ms, 3),
            "backward_ms": round(top.backward_ms or 0.0, 3),
            "at_most_if_free": round(top.if_free or 1.0, 2),
            "at_most_if_twice_as_fast": round(top.if_twice or 1.0, 2),
            "next_stage": second.name,
            "next_share": round(second.share or 0.0, 3),
        },
        cause=message(
            "co508.cause",
            stage=top.name,
            module=top.module,
            ms=top.ms,
            step_ms=run.step_ms,
            next_stage=second.name,
            next_ms=second.ms,
        ),
        change=message("co508.change", stage=top.name, gain=top.if_twice or 1.0),
    )
