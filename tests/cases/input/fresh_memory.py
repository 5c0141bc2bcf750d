"""Runs that have IN117, and that must stay quiet."""

from __future__ import annotations

from tests.cases.evidence import Case, loader, on_gpu, run

_HERE = {"fresh_memory_ms_per_mib": {"reading": 0.06, "freeing": 0.19}}
_LARGE = loader(batch_bytes=80 << 20)
CASES = (
    Case(
        "finds it when pinned batches are large and the host is what a step waits for",
        run(gpu=on_gpu(util_mean=80.0, drained_share=0.15), loaders=(_LARGE,), environment=_HERE),
        found=True,
    ),
    Case(
        "quiet when the device is busy all the time",
        run(gpu=on_gpu(util_mean=99.0, drained_share=0.0), loaders=(_LARGE,), environment=_HERE),
        found=False,
    ),
    Case("finds it on a CPU", run(loaders=(_LARGE,), environment=_HERE), found=True),
    Case(
        "quiet when batches are small",
        run(gpu=on_gpu(), loaders=(loader(batch_bytes=20 << 20),), environment=_HERE),
        found=False,
    ),
    Case(
        "quiet when the process that trains makes them itself",
        run(gpu=on_gpu(), loaders=(loader(num_workers=0, batch_bytes=None),), environment=_HERE),
        found=False,
    ),
    Case("quiet when this machine was not measured", run(gpu=on_gpu(), loaders=(_LARGE,)), found=False),
)
