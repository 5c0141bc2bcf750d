"""Runs that have HO401, and that must stay quiet."""

from __future__ import annotations

from tests.cases.evidence import Case, on_gpu, run

_DRY_GPU = on_gpu(
    starved_share=0.01, util_mean=32.0, sm_active=0.22, drained_share=0.9, device_ms={"starved": 0.15, "step": 15.0}
)
CASES = (
    Case(
        "finds it when a small network is launched more slowly than it runs",
        run(
            gpu=_DRY_GPU, ms={"data": 0.15, "h2d": 0.2, "forward": 4.7, "backward": 6.2, "optimizer": 3.3, "other": 0.4}
        ),
        found=True,
    ),
    Case("quiet when the device is busy", run(gpu=on_gpu()), found=False),
    Case(
        "quiet when the device waits for data, not for launches",
        run(
            gpu=on_gpu(
                starved_share=0.85, util_mean=11.0, drained_share=0.9, device_ms={"starved": 85.0, "step": 100.0}
            ),
            ms={"data": 85.0, "forward": 4.0, "backward": 8.0, "optimizer": 3.0},
        ),
        found=False,
    ),
    Case(
        "quiet on a CPU, which computes itself",
        run(ms={"forward": 4.7, "backward": 6.2, "optimizer": 3.3}),
        found=False,
    ),
)
