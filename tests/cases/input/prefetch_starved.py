"""Runs that have IN112, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Waiting
from tests.cases.evidence import Case, loader, on_gpu, run, worker_cost

_UNEVEN = Waiting(0.0, None, rest_ms=20.0, median_ms=10.0, empty_share=0.5, ready_ms=0.5)
_STARVED = on_gpu(starved_share=0.2, drained_share=0.4, device_ms={"starved": 20.0, "step": 100.0})
_MS = {"data": 20.5, "forward": 25.0, "backward": 46.5, "optimizer": 8.0}
_ONE_AHEAD = loader(
    prefetch_factor=1,
    num_workers=1,
    cost=worker_cost(workers=1, fetch_ms_per_sample=1.6, busy_share=0.55, slowest_batch_ms=150.0),
)
CASES = (
    Case(
        "finds it when one batch ahead does not last",
        run(gpu=_STARVED, loaders=(_ONE_AHEAD,), ms=_MS, waiting=_UNEVEN),
        found=True,
    ),
    Case("finds it on a CPU", run(loaders=(_ONE_AHEAD,), ms=_MS, waiting=_UNEVEN), found=True),
    Case(
        "quiet when the workers have no time left",
        run(
            gpu=_STARVED,
            loaders=(
                loader(
                    prefetch_factor=1,
                    num_workers=1,
                    cost=worker_cost(workers=1, fetch_ms_per_sample=3.0, slowest_batch_ms=150.0),
                ),
            ),
            ms=_MS,
            waiting=_UNEVEN,
        ),
        found=False,
    ),
    Case(
        "quiet when enough is fetched ahead: something else holds the batches up",
        run(
            gpu=_STARVED,
            loaders=(loader(prefetch_factor=8, cost=worker_cost(slowest_batch_ms=150.0, busy_share=0.2)),),
            ms=_MS,
            waiting=_UNEVEN,
        ),
        found=False,
    ),
    Case(
        "quiet when batches lie ready and taking them over is slow",
        run(
            gpu=_STARVED,
            loaders=(_ONE_AHEAD,),
            ms=_MS,
            waiting=Waiting(0.0, None, 20.0, 20.0, empty_share=0.0, ready_ms=20.0),
        ),
        found=False,
    ),
)
