"""Books Python's garbage collections on the training thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .tracer import Tracer
from .wire import GC


class CollectorWatch:
    def __init__(self, tracer: Tracer, trouble: Callable[[Exception], None]) -> None:
        self._tracer = tracer
        self._trouble = trouble
        self._before = -1

    def install(self) -> None:
        if self._call not in gc.callbacks:
            gc.callbacks.append(self._call)

    def remove(self) -> None:
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, info: dict[str, Any]) -> None:
        tracer = self._tracer
        if tracer.owner != get_ident() or not tracer.on:
            return
        try:
            if phase == "start":
                self._before = tracer.enter(GC)
            elif self._before >= 0:
                tracer.leave(self._before)
                self._before = -1
        except Exception as error:
            self._trouble(error)
