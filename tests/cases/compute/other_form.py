"""Runs that have CO525, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import OpCost, OtherForm
from flatout.records.report import Location
from tests.cases.evidence import HERE, Case, run

_MS = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0}
_THERE = Location("train.py", 12)
_COST = OpCost(HERE, "forward", in_module=True, calls=1.0, forward_ms=15.0, backward_ms=25.0, backward_ops=4.0)
_PRODUCT = OtherForm(
    "product", (HERE, _THERE), (256, 32, 32, 1), ("expanded",), (0,), 5.0, now_ms=(2.0, 4.0), other_ms=(0.1, 0.2)
)
_FACTORED = OtherForm(
    "factorization", (HERE,), (256, 32), ("slogdet",), (), uses=5.0, now_ms=(2.0, 4.0), other_ms=(0.1, 0.2)
)
_TRANSFORM = replace(
    _PRODUCT, kind="transform", sizes=(8, 8191), names=("r2c",), options=(1,), is_padded=True, lengths=(8191, 8192)
)
_AGAIN = replace(_PRODUCT, kind="factored_again", sizes=(1, 300, 1), names=("inv", "slogdet"), options=())
_ENLARGED = replace(_PRODUCT, kind="enlarged", sizes=(4, 64, 32, 32, 64, 64, 32), names=("bilinear",), options=(0,))
_CHAIN = replace(
    _PRODUCT,
    kind="chain",
    locations=(HERE,),
    sizes=(1, 500, 500, 500, 16),
    names=("mm",),
    options=(2, 1, 1, 2),
)
CASES = (
    Case(
        "finds it when one product takes a fraction of many",
        run(ms=_MS, other_forms=(_PRODUCT,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when one matrix is multiplied with and factored",
        run(ms=_MS, other_forms=(_PRODUCT, _FACTORED), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when a transform of a padded signal has an awkward length",
        run(ms=_MS, other_forms=(_TRANSFORM,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when a transform has an awkward length",
        run(ms=_MS, other_forms=(replace(_TRANSFORM, is_padded=False),), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when a matrix is factored twice",
        run(ms=_MS, other_forms=(_AGAIN,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when a convolution of 1x1 follows an interpolation",
        run(ms=_MS, other_forms=(_ENLARGED,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "finds it when products of large matrices come first",
        run(ms=_MS, other_forms=(_CHAIN,), op_costs=(_COST,)),
        found=True,
    ),
    Case(
        "quiet when another order takes as long",
        run(ms=_MS, other_forms=(replace(_CHAIN, other_ms=(2.1, 4.0)),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when the other form takes as long",
        run(ms=_MS, other_forms=(replace(_PRODUCT, other_ms=(2.0, 4.1)),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when nothing was timed",
        run(ms=_MS, other_forms=(replace(_PRODUCT, now_ms=None, other_ms=None),), op_costs=(_COST,)),
        found=False,
    ),
    Case(
        "quiet when the lines take little of the step",
        run(ms=_MS, other_forms=(_PRODUCT,), op_costs=(replace(_COST, forward_ms=0.5, backward_ms=0.6),)),
        found=False,
    ),
    Case("quiet without such operations", run(ms=_MS, op_costs=(_COST,)), found=False),
)
