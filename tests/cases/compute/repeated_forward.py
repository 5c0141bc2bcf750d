"""Runs that have CO513, and that must stay quiet."""

from __future__ import annotations

from dataclasses import replace

from flatout.records.evidence import NeedlessCall
from flatout.records.report import Location
from tests.cases.evidence import HERE, Case, on_gpu, run

_SHORT = NeedlessCall("repeat", "Head", HERE, "step", Location("train.py", 8), 1.0, 0.5, 1.0)
_CALL = NeedlessCall("repeat", "Generator", HERE, "step", Location("train.py", 8), 2.0, 10.0, 20.0)
CASES = (
    Case("finds it when a module computes the same again", run(needless_calls=(_CALL,)), found=True),
    Case("finds it on a GPU", run(gpu=on_gpu(), needless_calls=(_CALL,)), found=True),
    Case(
        "finds it when the results differ by dropout",
        run(needless_calls=(replace(_CALL, is_random=True, backward_ms=0.0),)),
        found=True,
    ),
    Case(
        "finds it when running statistics are updated twice",
        run(needless_calls=(replace(_CALL, moves_state=True),)),
        found=True,
    ),
    Case(
        "quiet when it costs little",
        run(needless_calls=(_SHORT,)),
        found=False,
    ),
    Case("quiet when gradients are the matter", run(needless_calls=(replace(_CALL, kind="unheld"),)), found=False),
    Case("quiet when nothing is repeated", run(), found=False),
)
