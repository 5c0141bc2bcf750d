"""Activations are recomputed in backward though GPU memory is free.

What it is: activation checkpointing. Parts of the model keep their inputs only, and are run a second time in backward.

Why the GPU idles: it does not; it computes a part of each forward pass twice, and the host launches it twice, to save
memory that is not used.

How it shows in a run: `torch.utils.checkpoint` is called in every step, and less than half of the GPU's memory is
used.

The fix: switch it off (`use_checkpoint=False`, `gradient_checkpointing=False` or however the model calls it), or for
some blocks only. From outside `memory.keep` keeps what those parts compute, as far as the memory goes; losses and
weights stay the same to the last bit.

What to expect: the forward time of the checkpointed parts is saved once: up to a quarter of a step.

When it is fine: memory is needed for a larger batch or longer inputs than this run has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.model.edits import Edits, LessDevice, LessHost
from flatout.model.measured import device_work_ms
from flatout.problems.found import WORTH, FoundInRun
from flatout.problems.memory.growth import amount
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "CO512"
REMEDY = "memory.keep"
_ROOM = 0.5
# Above this the device sets the pace, below it the host.
_BUSY = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    per_step = _per_step(run.torch_states)
    # Used and in all, of the fullest device.
    memory = [(state.memory_used_bytes or 0.0, state.memory_total_bytes) for state in run.gpus]
    known = [(used, total) for used, total in memory if total]
    used, total = max(known, key=lambda memory: memory[0] / memory[1], default=(0.0, 0.0))
    if per_step is None or not run.on_gpu or not total or used > _ROOM * total:
        return
    calls, host_ms = per_step
    if host_ms < WORTH * run.step_ms:
        return
    forward_ms = run.phase("forward").ms
    gpu, work_ms = run.report.gpu, device_work_ms(run)
    on_device_ms = (gpu.device_ms or {}).get("forward", 0.0) if gpu is not None else 0.0
    device_ms = min(1.0, host_ms / forward_ms if forward_ms else 1.0) * min(on_device_ms, work_ms or 0.0)
    is_busy = work_ms is not None and work_ms > _BUSY * (run.step_ms - run.phase("eval").ms)
    spared_ms = device_ms if is_busy else host_ms
    yield FoundInRun(
        evidence={
            "calls_per_step": round(calls, 2),
            "forward_ms_per_step": round(host_ms, 2),
            "used_bytes": round(used),
            "total_bytes": round(total),
        },
        cause=message("co512.cause", calls=calls, free=amount(total - used), total=amount(total)),
        change=message("co512.change"),
        edits=Edits((LessHost(spared_ms, is_sampled=False), LessDevice(device_ms))),
    )


def _per_step(states: tuple[dict[str, Any], ...]) -> tuple[float, float] | None:
    """Calls, and their milliseconds in forward. The first steps of a run are slow: the last figures less the first."""
    told = [state["recomputed"] for state in states if isinstance(state.get("recomputed"), dict)]
    if not told:
        return None
    first, last = told[0], told[-1]
    if last["steps"] - first["steps"] < 3:
        first = {"calls": 0, "seconds": 0.0, "steps": 0}
    steps = last["steps"] - first["steps"]
    if steps < 1:
        return None
    return (last["calls"] - first["calls"]) / steps, 1e3 * (last["seconds"] - first["seconds"]) / steps
