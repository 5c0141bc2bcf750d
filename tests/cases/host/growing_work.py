"""Runs that have HO415, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import GrowingWork
from flatout.records.report import Location
from tests.cases.evidence import Case, on_gpu, run

_MS = {"forward": 30.0, "backward": 40.0, "optimizer": 10.0, "other": 20.0}


def _work(other_ms: float) -> GrowingWork:
    return GrowingWork(Location("train.py", 30), "compute", "epoch", 80, 1.0, 2 * other_ms, {"other": other_ms})


CASES = (
    Case("finds it when the metric goes over all of the epoch", run(ms=_MS, growing_work=_work(18.0)), found=True),
    Case(
        "finds it when the GPU runs empty meanwhile",
        run(gpu=on_gpu(util_mean=50.0, drained_share=0.8), ms=_MS, growing_work=_work(18.0)),
        found=True,
    ),
    Case("quiet when it is a small part of the step", run(ms=_MS, growing_work=_work(4.0)), found=False),
    Case(
        "quiet when the GPU has enough to do",
        run(gpu=on_gpu(util_mean=99.0, drained_share=0.0), ms=_MS, growing_work=_work(18.0)),
        found=False,
    ),
    Case("quiet when nothing grows", run(ms=_MS), found=False),
)
