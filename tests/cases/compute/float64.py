"""Runs that have CO516, and that must stay quiet."""

from __future__ import annotations

from typing import Any

from flatout.records.report import KernelShare, KernelUse, RunFacts
from tests.cases.evidence import HERE, Case, live_state, on_gpu, run

_WIDE, _LITTLE = {"float64": 1.0}, {"float32": 0.95, "float64": 0.05}


def _on(card: str, **changes: Any) -> Case:
    facts = RunFacts("run", ("train.py",), 0, 300, 30.0, 1, card, "2.13.0", "3.12")
    live = live_state(grad_dtypes=_WIDE, grad_elements=_WIDE)
    return Case(f"finds it on a {card}", run(gpu=on_gpu(**changes), run=facts, live=live), found=True)


CASES = (
    Case(
        "finds it when a product and a sum were timed",
        run(
            live=live_state(
                grad_dtypes=_WIDE, grad_elements=_WIDE, float64_factors={"product": 2.0, "elementwise": 1.6}
            ),
            float64_at=HERE,
        ),
        found=True,
    ),
    Case(
        "finds it in an older recording, where nothing was timed", run(live=live_state(grad_dtypes=_WIDE)), found=True
    ),
    _on("NVIDIA H200"),
    _on("NVIDIA GeForce RTX 4090"),
    Case(
        "quiet when float32 would be no faster here",
        run(live=live_state(grad_elements=_WIDE, float64_factors={"product": 0.9, "elementwise": 1.0})),
        found=False,
    ),
    Case(
        "quiet when only the loss is in float64",
        run(
            live=live_state(
                grad_dtypes={"float32": 0.9, "float64": 0.1}, grad_elements={"float32": 1.0, "float64": 0.0001}
            )
        ),
        found=False,
    ),
    Case(
        "finds it in one product of the loss, by its kernels",
        run(
            gpu=on_gpu(kernels=KernelUse(25.0, 400, (KernelShare("gemm", 9, 11.0, float64_ms=7.0),))),
            live=live_state(grad_dtypes=_LITTLE, grad_elements=_LITTLE),
        ),
        found=True,
    ),
    Case(
        "quiet when its kernels are short, however many elements there are",
        run(
            gpu=on_gpu(kernels=KernelUse(25.0, 400, (KernelShare("reduction", 9, 11.0, float64_ms=0.1),))),
            live=live_state(grad_dtypes=_WIDE, grad_elements=_WIDE),
        ),
        found=False,
    ),
    Case(
        "quiet when the GPU waits for the host",
        run(gpu=on_gpu(drained_share=0.8), live=live_state(grad_dtypes=_WIDE)),
        found=False,
    ),
    Case("quiet in float32", run(live=live_state(grad_dtypes={"float32": 1.0})), found=False),
)
