"""Runs that have ME703, and that must stay quiet."""

from __future__ import annotations

from flatout.problems.memory.growth import GIB
from flatout.records.evidence import GpuState
from tests.cases.evidence import Case, on_gpu, run


def _gpu(used_gib: float, own_gib: float) -> GpuState:
    return GpuState(0, memory_total_bytes=80 * GIB, memory_used_bytes=used_gib * GIB, own_memory_bytes=own_gib * GIB)


CASES = (
    Case("finds it when the run fills the device", run(gpu=on_gpu(), gpus=(_gpu(78.5, 78.0),)), found=True),
    Case("quiet with room to spare", run(gpu=on_gpu(), gpus=(_gpu(60.0, 59.0),)), found=False),
    Case("quiet when it is not measured", run(gpu=on_gpu(), gpus=(GpuState(0),)), found=False),
)
