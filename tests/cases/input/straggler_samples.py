"""Runs that have IN108, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from tests.cases.evidence import Case, loader, on_gpu, run, worker_cost

_LATE = Waiting(0.0, None, rest_ms=40.0, median_ms=0.5, late_ms=38.0, late_share=0.1, empty_share=0.1, ready_ms=0.5)
_STARVED = on_gpu(starved_share=0.4, drained_share=0.5, device_ms={"starved": 40.0, "step": 100.0})
_MS = {"data": 40.0, "forward": 20.0, "backward": 36.0, "optimizer": 4.0}
_UNEVEN = loader(cost=worker_cost(slowest_batch_ms=600.0, busy_share=0.3))
CASES = (
    Case(
        "finds it when one batch in ten is many times late",
        run(gpu=_STARVED, loaders=(_UNEVEN,), ms=_MS, waiting=_LATE),
        found=True,
    ),
    Case("finds it on a CPU", run(loaders=(_UNEVEN,), ms=_MS, waiting=_LATE), found=True),
    Case(
        "quiet when only one batch of the run was slow",
        run(gpu=on_gpu(), loaders=(_UNEVEN,), waiting=Waiting(0.0, None, 1.0, 0.5, late_ms=0.6, late_share=0.003)),
        found=False,
    ),
    Case(
        "quiet when all batches are late",
        run(gpu=_STARVED, loaders=(_UNEVEN,), ms=_MS, waiting=Waiting(0.0, None, 40.0, 40.0, empty_share=1.0)),
        found=False,
    ),
    Case(
        "quiet when the waits are long but no batch is slow: something else stops the workers",
        run(gpu=_STARVED, loaders=(loader(),), ms=_MS, waiting=_LATE),
        found=False,
    ),
)
