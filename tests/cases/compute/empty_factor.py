"""Runs that have CO518, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import EmptyFactor, HeavyLine, OpCost
from tests.cases.evidence import HERE, Case, run

_MS = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0}
_COST = OpCost(HERE, "forward", in_module=True, calls=3.0, forward_ms=33.0, backward_ms=35.0, backward_ops=8.0)
_FACTOR = EmptyFactor((2400, 2400, 48), density=0.0025, uses=3.0, dense_ms=19.4, sparse_ms=0.8)
_LINE = HeavyLine(HERE, "forward", operations=8e8, unread_share=0.0, factors=(_FACTOR,))
CASES = (
    Case(
        "finds it when a sparse product takes a fraction of the time",
        run(ms=_MS, heavy_lines=(_LINE,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "quiet when a sparse product takes as long",
        run(ms=_MS, heavy_lines=(replace(_LINE, factors=(replace(_FACTOR, sparse_ms=19.2),)),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when nothing was timed",
        run(
            ms=_MS,
            heavy_lines=(replace(_LINE, factors=(replace(_FACTOR, dense_ms=None, sparse_ms=None),)),),
            op_costs=(_COST,),
        ),
        found=False,
    ),
    Case(
        "quiet when the line takes little of the step",
        run(ms=_MS, heavy_lines=(_LINE,), op_costs=(replace(_COST, forward_ms=0.5, backward_ms=0.6),)),
        found=False,
    ),
    Case("quiet without such a factor", run(ms=_MS, heavy_lines=(replace(_LINE, factors=()),)), found=False),
)
