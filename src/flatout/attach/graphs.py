"""CUDA graphs: a captured optimizer step runs again at every replay, without any of our boundaries."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from .optimizers import OptimizerWatch
from .patching import Patches
from .tracer import Tracer

REPLAYED = 2


class GraphWatch:
    """Counts the replays of a graph that holds an optimizer step as steps."""

    def __init__(
        self, torch: Any, tracer: Tracer, optimizers: OptimizerWatch, trouble: Callable[[Exception], None]
    ) -> None:
        self._torch = torch
        self._optimizers = optimizers
        self._tracer = tracer
        self._trouble = trouble

    def install(self, patches: Patches) -> None:
        kind = self._torch.cuda.CUDAGraph
        patches.replace(kind, "capture_end", self._make_capture_end)
        patches.replace(kind, "replay", self._make_replay)

    def _make_capture_end(self, original: Any) -> Any:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            try:
                graph._flatout_steps = self._optimizers.captured
                self._optimizers.captured = 0
            except Exception as error:
                self._trouble(error)
            return result

        return capture_end

    def _make_replay(self, original: Any) -> Any:
        tracer = self._tracer

        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            try:
                if graph.__dict__.get("_flatout_steps") and tracer.owner == get_ident():
                    self._optimizers.stepped(REPLAYED)
            except Exception as error:
                self._trouble(error)
            return result

        return replay
