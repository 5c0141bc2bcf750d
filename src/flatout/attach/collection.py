"""Puts garbage collection off while something of ours runs that must not have one in its midst.

Reading the stack of another thread on Python 3.11 can crash if one begins (see `watch.lines`). Walking the graph of
autograd makes thousands of objects that soon go: a collection of all that the script has would come early by them, and
take longer than the walk.
"""

from __future__ import annotations

import gc
import threading


class NoCollection:
    """Entered, no collection begins, by whichever thread; several may have entered.

    Should the script switch collection off meanwhile, that is undone: nothing tells it from what this has done itself.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child the other threads are gone, whatever they held."""
        self._lock = threading.Lock()
        if getattr(self, "_is_off", False):
            gc.enable()
        self._is_off = False
        self._entered = 0

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            if gc.isenabled():
                self._is_off = True
                gc.disable()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._entered = max(0, self._entered - 1)
            if self._is_off and not self._entered:
                self._is_off = False
                gc.enable()


no_collection = NoCollection()
