"""Some remedies look on for a while, or compile, before they begin. A trial's steps count from then on."""

from __future__ import annotations

from collections.abc import Iterable

_STEPS = {
    "compile.model": 120,
    "precision.bf16": 10,
    "precision.fp16": 20,
    "transfer.async": 25,
    "transfer.prefetch": 10,
}
# Graphs are timed in blocks before and after, which are shorter where steps are slow: from so many seconds a step to so
# many, between so many steps in all and so many.
_GRAPHS, _SLOW_S, _GRAPH_STEPS = "graphs.model", (0.1, 0.33), (80, 40)


def late_steps(remedies: Iterable[str], step_s: float = 0.0) -> int:
    """One after the other, at the worst, where a step takes so long."""
    return sum(_graph_steps(step_s) if name == _GRAPHS else _STEPS.get(name, 0) for name in remedies)


def _graph_steps(step_s: float) -> int:
    (quick_s, slow_s), (most, fewest) = _SLOW_S, _GRAPH_STEPS
    share = min(1.0, max(0.0, (step_s - quick_s) / (slow_s - quick_s)))
    return round(most + share * (fewest - most))
