"""Sees a module put back into training mode after an evaluation, without a cost in any other step.

`Module.train` calls itself for every module below, so a patch of it would be paid hundreds of times by a script that
calls it in each step. It is therefore replaced only from a call of `eval` on, for one call.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

from .tracer import TRAIN_CALLED, Tracer, clock


class TrainingAgain:
    """Waits for the first `train()` after an `eval()`."""

    def __init__(self, module_class: Any, tracer: Tracer) -> None:
        self._class = module_class
        self._tracer = tracer
        self._original = module_class.train

    def arm(self) -> None:
        # Somebody else's patch is left alone: then evaluations without a loader are not told apart.
        if self._class.__dict__.get("train") is not self._original:
            return
        original, tracer = self._original, self._tracer

        def train(module: Any, mode: bool = True) -> Any:
            self.disarm()
            if mode and tracer.owner == get_ident():
                tracer.log(TRAIN_CALLED)
                tracer.at(clock())
            return original(module, mode)

        train.__flatout__ = True  # type: ignore[attr-defined]
        self._class.train = train
        self._armed = train

    def disarm(self) -> None:
        if getattr(self._class.__dict__.get("train"), "__flatout__", False):
            self._class.train = self._original
