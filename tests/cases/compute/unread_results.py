"""Runs that have CO519, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import HeavyLine, OpCost
from tests.cases.evidence import HERE, Case, run

_MS = {"data": 1.0, "forward": 30.0, "backward": 60.0, "optimizer": 9.0}
_COST = OpCost(HERE, "forward", in_module=True, calls=1.0, forward_ms=20.0, backward_ms=40.0, backward_ops=8.0)
_LINE = HeavyLine(HERE, "forward", operations=1e9, unread_share=0.85)
CASES = (
    Case(
        "finds it when the loss reads a few of the positions",
        run(ms=_MS, heavy_lines=(_LINE,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "quiet when one layer of four alike is not read",
        run(ms=_MS, heavy_lines=(replace(_LINE, unread_share=0.25),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when the line takes little of the step",
        run(ms=_MS, heavy_lines=(_LINE,), op_costs=(replace(_COST, forward_ms=2.0, backward_ms=4.0),)),
        found=False,
    ),
    Case("quiet when all is read", run(ms=_MS, heavy_lines=(replace(_LINE, unread_share=0.0),)), found=False),
    Case("quiet without a window", run(ms=_MS), found=False),
)
