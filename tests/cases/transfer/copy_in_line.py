"""Runs that have TR206, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import CopySite, RunFacts
from tests.cases.evidence import HERE, Case, on_gpu, run

_ON_H200 = RunFacts("run", ("train.py",), 0, 300, 30.0, 1, "NVIDIA H200", "2.13.0", "3.12")
_BUSY = on_gpu(drained_share=0.01)
_SITE = CopySite(HERE, "train", 1.0, 0.1, 40 * 55e6, 1.0, 1.0)
_SMALL = CopySite(HERE, "train", 1.0, 0.1, 2 * 55e6, 1.0, 1.0)
CASES = (
    Case(
        "finds it when large batches are copied between the kernels",
        run(gpu=_BUSY, run=_ON_H200, copies=(_SITE,)),
        True,
    ),
    Case("quiet when there is little to copy", run(gpu=_BUSY, run=_ON_H200, copies=(_SMALL,)), found=False),
    Case(
        "quiet when a stream of their own is there for it",
        run(gpu=_BUSY, run=_ON_H200, copies=(_SITE,), own_stream_copies=frozenset({HERE})),
        found=False,
    ),
    Case(
        "quiet when the device waits for the host",
        run(gpu=on_gpu(drained_share=0.6), run=_ON_H200, copies=(_SITE,)),
        found=False,
    ),
)
