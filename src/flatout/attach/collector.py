"""Books Python's garbage collections on the training thread."""

from __future__ import annotations

import gc
from threading import get_ident
from typing import Any

from .tracer import ENTER_GC, LEAVE, Tracer, clock


class CollectorWatch:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def install(self) -> None:
        if self._call not in gc.callbacks:
            gc.callbacks.append(self._call)

    def remove(self) -> None:
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, info: dict[str, Any]) -> None:
        tracer = self._tracer
        if tracer.owner == get_ident():
            tracer.log(ENTER_GC if phase == "start" else LEAVE)
            tracer.at(clock())
