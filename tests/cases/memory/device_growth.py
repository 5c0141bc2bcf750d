"""Runs that have ME708, and that must stay quiet."""

from __future__ import annotations

from flatout.problems.memory.growth import GIB
from flatout.records.evidence import GpuState, Series
from tests.cases.evidence import Case, growing_series, on_gpu, run


def _series(per_s: float, ends_at_s: float = 60.0) -> dict[str, Series]:
    return {"gpu_memory_bytes": growing_series(8e9, per_s, ends_at_s)}


_CARD = (GpuState(0, memory_total_bytes=80 * GIB, memory_used_bytes=20 * GIB),)
CASES = (
    Case("finds it when each step leaves a graph", run(gpu=on_gpu(), series=_series(5e7), gpus=_CARD), found=True),
    Case("quiet when it levels off", run(gpu=on_gpu(), series=_series(5e8, 40.0), gpus=_CARD), found=False),
    Case("quiet when it holds still", run(gpu=on_gpu(), series=_series(0.0), gpus=_CARD), found=False),
)
