"""Runs that have CO523, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import OpCost, SummedPairs
from tests.cases.evidence import HERE, Case, run

_MS = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0}
_COST = OpCost(HERE, "forward", in_module=True, calls=1.0, forward_ms=25.0, backward_ms=35.0, backward_ops=4.0)
_PAIRS = SummedPairs((HERE,), True, rows=64, columns=2000, values=96, uses=1.0, formed_ms=58.0, multiplied_ms=2.0)
CASES = (
    Case(
        "finds it when a product takes a fraction of the time",
        run(ms=_MS, summed_pairs=(_PAIRS,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it in sums of products",
        run(ms=_MS, summed_pairs=(replace(_PAIRS, is_difference=False),), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it at a line that does more",
        run(ms=_MS, summed_pairs=(_PAIRS,), op_costs=(replace(_COST, backward_ops=80.0),)),
        found=True,
    ),
    Case(
        "quiet when a product takes as long",
        run(ms=_MS, summed_pairs=(replace(_PAIRS, multiplied_ms=58.0),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when nothing was timed",
        run(ms=_MS, summed_pairs=(replace(_PAIRS, formed_ms=None, multiplied_ms=None),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when the lines take little of the step",
        run(ms=_MS, summed_pairs=(_PAIRS,), op_costs=(replace(_COST, forward_ms=0.5, backward_ms=0.6),)),
        found=False,
    ),
    Case("quiet without such pairs", run(ms=_MS, op_costs=(_COST,)), found=False),
)
