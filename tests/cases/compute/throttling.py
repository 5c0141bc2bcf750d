"""Runs that have CO504, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GpuState
from tests.cases.evidence import Case, on_gpu, run


def _gpu(throttled: dict[str, float], clock_mhz: float = 1200.0) -> tuple[GpuState, ...]:
    return (GpuState(0, throttled=throttled, slowed_clock_mhz=clock_mhz, best_clock_mhz=1980.0),)


CASES = (
    Case("finds it when the card is too hot", run(gpu=on_gpu(), gpus=_gpu({"software thermal": 0.8})), found=True),
    Case("quiet when it is only the power cap", run(gpu=on_gpu(), gpus=_gpu({"power cap": 0.9})), found=False),
    Case("quiet when it was for a moment", run(gpu=on_gpu(), gpus=_gpu({"hardware thermal": 0.01})), found=False),
    Case("quiet when nothing holds it down", run(gpu=on_gpu(), gpus=_gpu({})), found=False),
)
