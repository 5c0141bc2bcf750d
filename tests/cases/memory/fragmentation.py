"""Runs that have ME710, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.problems.memory.growth import GIB
from flatout.records.evidence import GpuState
from tests.cases.evidence import Case, on_gpu, run


def _live(reserved: float, allocated: float, split: float, **more: Any) -> dict[str, Any]:
    torch = {
        "memory_peak": int(reserved * GIB),
        "memory_allocated_peak": int(allocated * GIB),
        "memory_split_peak": int(split * GIB),
        **more,
    }
    return {"torch": torch, "loaders": [], "optimizers": []}


def _card(used: float) -> tuple[GpuState, ...]:
    return (GpuState(0, memory_total_bytes=80 * GIB, memory_used_bytes=used * GIB, own_memory_bytes=used * GIB),)


CASES = (
    Case(
        "finds it when a full device holds little",
        run(gpu=on_gpu(), live=_live(76, 48, 24), gpus=_card(77)),
        found=True,
    ),
    Case(
        "finds it when it makes the allocator start over",
        run(gpu=on_gpu(), live=_live(60, 40, 15, alloc_retries=9), gpus=_card(61)),
        found=True,
    ),
    Case(
        "finds it when the process may take a part of the device only",
        run(gpu=on_gpu(), live=_live(38, 25, 10, memory_allowed_share=0.5), gpus=_card(39)),
        found=True,
    ),
    Case("quiet when the device has room", run(gpu=on_gpu(), live=_live(40, 25, 12), gpus=_card(41)), found=False),
    Case(
        "quiet when what is reserved is in use", run(gpu=on_gpu(), live=_live(76, 70, 5), gpus=_card(77)), found=False
    ),
    Case(
        "quiet when the free memory is in whole blocks",
        run(gpu=on_gpu(), live=_live(76, 48, 3), gpus=_card(77)),
        found=False,
    ),
    Case(
        "quiet when segments expand already",
        run(gpu=on_gpu(), live=_live(76, 48, 24, alloc_conf="expandable_segments:True"), gpus=_card(77)),
        found=False,
    ),
    Case("quiet on a CPU", run(), found=False),
)
