"""Runs that have HO414, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import InterpreterUse
from flatout.records.report import Location
from tests.cases.evidence import Case, on_gpu, run

_MS = {"forward": 50.0, "backward": 40.0, "optimizer": 10.0}


def _use(wait_share: float, run_share: float = 0.9) -> InterpreterUse:
    return InterpreterUse("metrics", "poll", Location("train.py", 7), run_share, wait_share)


CASES = (
    Case("finds it when a thread polls all the time", run(ms=_MS, interpreter=_use(0.6)), found=True),
    Case(
        "finds it when the GPU runs empty meanwhile",
        run(gpu=on_gpu(util_mean=40.0, drained_share=0.8), ms=_MS, interpreter=_use(0.4, 0.5)),
        found=True,
    ),
    Case("quiet when the other thread mostly waits", run(ms=_MS, interpreter=_use(0.02, 0.02)), found=False),
    Case("quiet when there is no other thread", run(ms=_MS), found=False),
)
