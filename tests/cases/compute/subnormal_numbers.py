"""Runs that have CO521, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import HeavyLine, OpCost, SubnormalInput
from tests.cases.evidence import HERE, Case, run

_MS = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0}
_COST = OpCost(HERE, "forward", in_module=True, calls=3.0, forward_ms=33.0, backward_ms=35.0, backward_ops=8.0)
_INPUT = SubnormalInput((64, 2400), share=0.6, uses=1.0, slow_ms=43.0, quick_ms=0.8)
_LINE = HeavyLine(HERE, "forward", operations=8e8, unread_share=0.0, subnormals=(_INPUT,))


def _with(slow_ms: float | None, quick_ms: float | None) -> HeavyLine:
    return replace(_LINE, subnormals=(replace(_INPUT, slow_ms=slow_ms, quick_ms=quick_ms),))


CASES = (
    Case("finds it when they take long", run(ms=_MS, heavy_lines=(_LINE,), op_costs=(_COST,)), found=True),
    Case(
        "quiet on a processor that computes them at full speed",
        run(ms=_MS, heavy_lines=(_with(0.81, 0.8),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when nothing was timed",
        run(ms=_MS, heavy_lines=(_with(None, None),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when the line takes little of the step",
        run(ms=_MS, heavy_lines=(_LINE,), op_costs=(replace(_COST, forward_ms=0.5, backward_ms=0.6),)),
        found=False,
    ),
    Case("quiet without such numbers", run(ms=_MS, heavy_lines=(replace(_LINE, subnormals=()),)), found=False),
)
