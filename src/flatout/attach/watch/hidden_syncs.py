"""Finds synchronisations nobody wrote down (masks, nonzero, a device scalar used as a shape), in sampled steps.

For a step now and then, PyTorch's own sync debug mode is set to "warn" and its warnings are taken for ourselves:
they never reach the user, and a user's "error" filter never sees them.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from ..sites import Sites

_MESSAGE = "called a synchronizing CUDA operation"
_FILTER = ("always", re.compile(f".*{_MESSAGE}|.*Synchronization debug mode", re.DOTALL), Warning, None, 0)
_FIRST_STEP = 3
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class SyncWindows:
    """Opens at the end of one step, closes at the end of the next."""

    def __init__(self, torch: Any, sites: Sites, watched_call: list[bool]) -> None:
        self._torch = torch
        self._sites = sites
        # True while a call that is timed as a sync anyway is under way: no need to report it twice.
        self._watched_call = watched_call
        self._show_before: Any = None
        self._pause_s = _FIRST_PAUSE_S
        self._due_s = 0.0
        self._opened_at = 0
        self._failed = False
        self.is_open = False
        self.steps = 0

    def at_step_end(self, index: int, now: float) -> None:
        """Open or close as the schedule has it."""
        if self._failed:
            return
        if self.is_open:
            self.close()
            self.steps += index - self._opened_at
            if self.steps % 2 == 0:
                self._due_s = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if index >= _FIRST_STEP and now >= self._due_s and self._torch.cuda.is_initialized():
            self._opened_at = index
            self._open()

    def _open(self) -> None:
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing() or cuda.get_sync_debug_mode() != 0:
            return  # the user looks for syncs themselves, or captures a graph
        self._show_before = warnings.showwarning
        warnings.showwarning = self._show  # type: ignore[assignment]
        filters: Any = warnings.filters
        filters.insert(0, _FILTER)
        _filters_changed()
        self.is_open = True
        try:
            cuda.set_sync_debug_mode("warn")
        except Exception:
            self._failed = True
            self.close()

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        cuda = self._torch.cuda
        if cuda.get_sync_debug_mode() == 1:
            cuda.set_sync_debug_mode(0)
        filters: Any = warnings.filters
        if _FILTER in filters:
            filters.remove(_FILTER)
        _filters_changed()
        # If the script has put its own in place since, that one stays and hands over to nobody.
        if warnings.showwarning == self._show:
            warnings.showwarning = self._show_before

    def _show(self, message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        text = str(message)
        if _MESSAGE in text:
            if self.is_open and not self._watched_call[0]:
                self._sites.at("hidden", sys._getframe(1)).add(0.0)
        elif "Synchronization debug mode" not in text:
            self._show_before(message, category, filename, lineno, *rest)


def _filters_changed() -> None:
    """Python keeps a cache per module of what the filters said; it has to be told. The name varies with the version."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        changed = getattr(warnings, name, None)
        if changed is not None:
            changed()
            return
