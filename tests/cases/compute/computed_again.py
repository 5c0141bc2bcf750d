"""Runs that have CO512, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.problems.memory.growth import GIB
from flatout.records.evidence import GpuState
from tests.cases.evidence import Case, on_gpu, run


def _states(*seconds: float) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"recomputed": {"calls": 16 * (10 + 40 * place), "seconds": value, "steps": 10 + 40 * place}}
        for place, value in enumerate(seconds)
    )


def _gpu(used_gib: float) -> tuple[GpuState, ...]:
    return (GpuState(0, memory_total_bytes=80 * GIB, memory_used_bytes=used_gib * GIB),)


_MS = {"forward": 30.0, "backward": 60.0, "optimizer": 8.0, "sync": 2.0}
CASES = (
    Case(
        "finds it when the device is nearly empty",
        run(gpu=on_gpu(), gpus=_gpu(12.0), ms=_MS, torch_states=_states(3.0, 4.0)),
        found=True,
    ),
    Case(
        "finds it when the host sets the pace",
        run(gpu=on_gpu(util_mean=50.0, drained_share=0.8), gpus=_gpu(12.0), ms=_MS, torch_states=_states(3.0, 4.0)),
        found=True,
    ),
    Case(
        "quiet when the memory is needed",
        run(gpu=on_gpu(), gpus=_gpu(60.0), ms=_MS, torch_states=_states(3.0, 4.0)),
        found=False,
    ),
    Case(
        "quiet when hardly anything is computed again",
        run(gpu=on_gpu(), gpus=_gpu(12.0), ms=_MS, torch_states=_states(0.01, 0.05)),
        found=False,
    ),
    Case("quiet when nothing is", run(gpu=on_gpu(), gpus=_gpu(12.0), ms=_MS), found=False),
)
