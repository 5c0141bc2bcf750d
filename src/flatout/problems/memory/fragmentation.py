"""torch holds far more GPU memory than its tensors take, in pieces too small to use.

What it is: torch's allocator holds far more memory than the tensors in it take, in gaps between tensors that are too
small for the next allocation. Shapes that change from step to step (padding to the longest, other image sizes, an
evaluation with its own batch) do that.

Why the GPU idles: close to the limit the allocator frees its cache and asks the driver again, which waits for the
device; in the end the run dies of "CUDA out of memory" while gigabytes are free.

How it shows in a run: at its peak the memory reserved is far above the memory allocated, most of the difference is
split off blocks in use, and the device, or the part of it that the process may take, is nearly full or the allocator
had to free its cache and retry.

The fix: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment, before the script starts. Fewer shapes
(pad to a few lengths) help too.

What to expect: room for a larger batch, and no more retries. How long those took is not measured, so no gain is
promised.

When it is fine: the device has room, and the peak is behind you.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.problems.found import FoundInRun
from flatout.problems.memory.growth import GIB, amount
from flatout.records.evidence import Evidence
from flatout.records.message import message, verbatim

CODE = "ME710"
# Reserved but not allocated at the peak: from this share of what is reserved on, and this many bytes.
_LARGE_SHARE = 0.2
_LARGE_BYTES = 1 * GIB
# Of that difference, so much must lie in pieces of blocks that are in use: the rest is whole blocks, free for anyone.
_SPLIT = 0.5
_NEAR = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    state = run.live_torch
    if not run.on_gpu:
        return
    reserved, allocated, split = (
        _number(state, name) for name in ("memory_peak", "memory_allocated_peak", "memory_split_peak")
    )
    expands = "expandable_segments:true" in str(state.get("alloc_conf") or "").lower().replace(" ", "")
    if reserved is None or allocated is None or split is None or expands:
        return
    idle = reserved - allocated
    if idle < max(_LARGE_BYTES, _LARGE_SHARE * reserved) or split < _SPLIT * idle:
        return
    filled = _filled_share(run, reserved, _number(state, "memory_allowed_share"))
    retries = int(state.get("alloc_retries") or 0)
    if not retries and (filled is None or filled < _NEAR):
        return
    cause = message("me710.cause", reserved=amount(reserved), allocated=amount(allocated), split=amount(split))
    yield FoundInRun(
        severity="high" if retries / max(1, run.report.run.steps) >= 0.01 else "medium",
        evidence={
            "reserved_peak_bytes": round(reserved),
            "allocated_peak_bytes": round(allocated),
            "split_peak_bytes": round(split),
            "alloc_retries": retries,
            "device_share": "not measured" if filled is None else round(filled, 3),
        },
        cause=message("me710.cause_retries", cause=cause, retries=retries) if retries else cause,
        change=verbatim("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    )


def _number(state: dict[str, Any], name: str) -> float | None:
    value = state.get(name)
    return float(value) if isinstance(value, int | float) else None


def _filled_share(run: Evidence, reserved: float, allowed_share: float | None) -> float | None:
    """Of the fullest device, by everybody's memory on it, or by what torch reserved of what it may take."""
    own = reserved / (allowed_share or 1.0) if len(run.gpus) == 1 else 0.0
    shares = [
        max(state.memory_used_bytes or 0.0, own) / state.memory_total_bytes
        for state in run.gpus
        if state.memory_total_bytes
    ]
    return max(shares, default=None)
