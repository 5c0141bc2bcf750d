"""Counts what will be computed again in backward: calls of `torch.utils.checkpoint.checkpoint`, and what they take."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from .patching import Patches
from .tracer import Tracer, clock


class RecomputeWatch:
    """Of the training thread. What a call takes in forward is about what it takes once more in backward."""

    def __init__(self, torch: Any, tracer: Tracer) -> None:
        self._torch = torch
        self._tracer = tracer
        self._within = False
        self._calls = 0
        self._seconds = 0.0

    def install(self, module: Any, patches: Patches) -> None:
        patches.replace(module, "checkpoint", self._make)

    def so_far(self, steps: int) -> dict[str, float] | None:
        """Calls and seconds in so many steps; None without any, as in most scripts."""
        if not self._calls:
            return None
        return {"calls": self._calls, "seconds": round(self._seconds, 4), "steps": steps}

    def _make(self, original: Any) -> Any:
        tracer, has_graph = self._tracer, self._torch.is_grad_enabled

        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            # One within another is part of that one; without a graph nothing is computed again.
            if self._within or tracer.owner != get_ident() or not has_graph():
                return original(*args, **kwargs)
            self._within = True
            begun = clock()
            try:
                return original(*args, **kwargs)
            finally:
                self._within = False
                self._calls += 1
                self._seconds += clock() - begun

        return checkpoint
