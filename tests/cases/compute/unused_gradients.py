"""Runs that have CO514, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import NeedlessCall
from tests.cases.evidence import HERE, Case, on_gpu, run

_CALL = NeedlessCall("unheld", "Teacher", HERE, "loss", None, 1.0, 10.0, 20.0)
_DROPPED = replace(_CALL, kind="dropped", module="Generator", forward_ms=0.0)
CASES = (
    Case("finds it when a teacher runs with gradients", run(needless_calls=(_CALL,)), found=True),
    Case("finds it on a GPU", run(gpu=on_gpu(), needless_calls=(_CALL,)), found=True),
    Case(
        "finds it when gradients have to go through",
        run(needless_calls=(replace(_CALL, flows_through=True),)),
        found=True,
    ),
    Case("finds it when gradients are cleared before they are used", run(needless_calls=(_DROPPED,)), found=True),
    Case("finds it on a GPU when they are cleared", run(gpu=on_gpu(), needless_calls=(_DROPPED,)), found=True),
    Case(
        "finds it when what is cleared is of operations, not of a call",
        run(needless_calls=tuple(replace(_DROPPED, module="", backward_ms=1.5) for _ in range(3))),
        found=True,
    ),
    Case(
        "finds it when a pass is for an input alone",
        run(needless_calls=(replace(_DROPPED, module="", flows_through=True),)),
        found=True,
    ),
    Case(
        "quiet when hardly anything is cleared",
        run(needless_calls=(replace(_DROPPED, backward_ms=0.01),)),
        found=False,
    ),
    Case("quiet when backward does not run it", run(needless_calls=(replace(_CALL, backward_ms=0.0),)), found=False),
    Case("quiet when the call is only a repeat", run(needless_calls=(replace(_CALL, kind="repeat"),)), found=False),
    Case("quiet when every weight is in an optimizer", run(), found=False),
)
