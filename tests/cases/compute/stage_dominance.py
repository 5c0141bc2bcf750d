"""Runs that have CO508, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import GpuUse, StageCost
from tests.cases.evidence import Case, on_gpu, run


def _stages(*shares: float, samples: int = 12) -> tuple[StageCost, ...]:
    """Of a step of 100 ms."""
    names = ("backbone.stem", "backbone.layer1", "neck", "head")
    return tuple(
        StageCost(
            name, "Sequential", 1000, 30 * share, 70 * share, share, 1 / (1 - share), 2 / (2 - share), 1.0, samples
        )
        for name, share in zip(names, shares, strict=False)
    )


def _case(name: str, found: bool, stages: tuple[StageCost, ...] | None, gpu: GpuUse | None = None) -> Case:
    return Case(name, run(gpu=gpu or on_gpu(), stages=stages), found)


_TOP_HEAVY = _stages(0.05, 0.1, 0.12, 0.62)

CASES = (
    _case("finds it when the head takes most of a step on the GPU", True, _TOP_HEAVY),
    Case("finds it when the CPU computes", run(stages=_TOP_HEAVY), found=True),
    _case("quiet when nobody asked for stages", False, None),
    _case("quiet when the stages are even", False, _stages(0.2, 0.25, 0.2, 0.25)),
    _case("quiet when there are hardly any stages", False, _stages(0.1, 0.8)),
    _case("quiet when it was seen in two steps", False, _stages(0.05, 0.1, 0.12, 0.62, samples=2)),
    _case("quiet when the GPU starves", False, _TOP_HEAVY, on_gpu(starved_share=0.4)),
    _case("quiet when the host binds", False, _TOP_HEAVY, on_gpu(drained_share=0.7)),
)
