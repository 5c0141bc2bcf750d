"""The script keeps tensors of every step on the device.

What it is: the script keeps tensors of each step on the device: losses with their graph, outputs, features in a list.

Why the GPU idles: it does not, until its memory is full and the run ends with "CUDA out of memory".

How it shows in a run: the memory that the run holds on its devices rises over the whole second half of the run and does
not level off.

The fix: `losses.append(loss.detach())`, or `.item()` now and then; move what has to be kept to the host; bound what
accumulates.

What to expect: no gain in speed, but a run that reaches its end.

When it is fine: the model grows on purpose (densification), and its final size is known to fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import DAY_S, TOO_FAR_S, amount, duration, lasting_growth
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "ME708"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    growth = lasting_growth(run.series.get("gpu_memory_bytes"))
    total = sum(state.memory_total_bytes or 0.0 for state in run.gpus)
    steps_per_s = run.report.throughput.steps_per_s
    if growth is None or not total or not steps_per_s:
        return
    left_s = max(0.0, total - growth.last_bytes) / growth.bytes_per_s
    if left_s > TOO_FAR_S:
        return
    per_step = growth.bytes_per_s / steps_per_s
    yield FoundInRun(
        severity="high" if left_s < DAY_S else "medium",
        evidence={
            "bytes_per_step": round(per_step),
            "gained_bytes": round(growth.gained_bytes),
            "held_bytes": round(growth.last_bytes),
            "total_bytes": round(total),
            "hours_left": round(left_s / 3600, 2),
        },
        cause=message("me708.cause", kept=amount(per_step), size=amount(total), left=duration(left_s)),
        change=message("me708.change"),
    )
