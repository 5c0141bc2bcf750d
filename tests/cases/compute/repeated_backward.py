"""Runs that have CO515, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import BackwardAgain
from tests.cases.evidence import HERE, Case, on_gpu, run

_AGAIN = BackwardAgain(HERE, "step", 3.0, 120.0, 40.0)
CASES = (
    Case("finds it when each loss has a pass of its own", run(backward_again=(_AGAIN,)), found=True),
    Case("finds it on a GPU", run(gpu=on_gpu(), backward_again=(_AGAIN,)), found=True),
    Case(
        "quiet when the shared part is small",
        run(backward_again=(BackwardAgain(HERE, "step", 3.0, 4.0, 1.0),)),
        found=False,
    ),
    Case("quiet when every pass has a graph of its own", run(), found=False),
)
