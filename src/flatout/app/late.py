"""Some remedies look on for a while, or compile, before they begin. A trial's steps count from then on."""

from __future__ import annotations

from collections.abc import Iterable

_STEPS = {
    "compile.model": 120,
    "graphs.model": 80,
    "precision.bf16": 10,
    "precision.fp16": 20,
    "transfer.async": 25,
    "transfer.prefetch": 10,
}


def late_steps(remedies: Iterable[str]) -> int:
    """One after the other, at the worst."""
    return sum(_STEPS.get(name, 0) for name in remedies)
