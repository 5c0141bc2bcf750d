"""Runs that have CO505, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import GpuUse
from tests.cases.evidence import Case, on_gpu, run


def _case(name: str, found: bool, gpu: GpuUse) -> Case:
    return Case(name, run(gpu=gpu), found)


CASES = (
    _case("finds it when a busy GPU uses a few of its parts", True, on_gpu(sm_active=0.12, tensor_active=0.01)),
    _case("quiet when the GPU is well used", False, on_gpu(sm_active=0.6)),
    _case("quiet when the host is too slow to launch", False, on_gpu(sm_active=0.12, drained_share=0.8)),
    _case("quiet when it starves", False, on_gpu(sm_active=0.12, starved_share=0.4)),
    _case("quiet when nobody counted", False, on_gpu(sm_active=None)),
)
