"""The run's memory on the device comes close to all it has.

What it is: what the run holds on a device comes close to all the device has.

Why the GPU idles: it does not yet. A longer sequence, a larger last batch or an evaluation is enough to run out; close
to the limit the allocator frees and re-allocates its blocks, which waits for the device each time.

How it shows in a run: the run's memory on the device against the device's total.

The fix: a slightly smaller batch, activation checkpointing, bf16, `optimizer.zero_grad(set_to_none=True)`,
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` against fragmentation; end other processes on the device.

What to expect: no gain in speed by itself, but a run that reaches its end.

When it is fine: shapes never change and the peak is behind you (a batch size chosen to fill the device).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import amount
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME703"
COMES_FROM = ("ME704", "ME710")
_NEAR = 0.95


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    known = [(state.memory_used_bytes or 0.0, state.memory_total_bytes, state) for state in run.gpus]
    filled = [(used / total, used, total, state) for used, total, state in known if total]
    share, used, total, worst = max(filled, key=itemgetter(0), default=(0.0, 0.0, 0.0, None))
    if worst is None or share < _NEAR:
        return
    own = worst.own_memory_bytes
    others = max(0.0, used - own) if own is not None else 0.0
    figures = {"used": amount(used), "size": amount(total), "gpu": worst.gpu}
    yield FoundInRun(
        severity="medium",
        evidence={
            "gpu": worst.gpu,
            "used_bytes": round(used),
            "total_bytes": round(total),
            "other_processes_bytes": round(others),
            "used_share": round(share, 3),
        },
        cause=message("me703.cause_others", **figures, others=amount(others))
        if others > 0.05 * total
        else message("me703.cause", **figures),
        change=message("me703.change"),
    )
