"""Finds hidden GPU syncs (masks, nonzero, a device scalar used as a shape) in sampled steps.

For a step now and then, PyTorch's own sync debug mode is set to "warn" and its warnings are caught here: they never
reach the user, and a user's "error" filter never sees them.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..context import Context, Watcher

_MESSAGE = "called a synchronizing CUDA operation"
_FILTER = ("always", re.compile(f".*{_MESSAGE}|.*Synchronization debug mode", re.DOTALL), Warning, None, 0)
_FIRST_STEP = 3
_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class HiddenSyncWatch(Watcher):
    """A window opens at the end of one step and closes at the end of the next."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._in_timed_sync = context.in_timed_sync
        self._show_before: Any = None
        self._pause_s = _FIRST_PAUSE_S
        self._due_s = 0.0
        self._opened_at = 0
        self._failed = False
        self._is_open = False

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Returns whether a window is open: then the next step is read by itself."""
        if self._failed:
            return False
        if self._is_open:
            self._close()
            self._sites.window_steps += index - self._opened_at
            if self._sites.window_steps % 2 == 0:
                self._due_s = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if index >= _FIRST_STEP and now >= self._due_s and self._torch.cuda.is_initialized():
            self._opened_at = index
            self._open()
        return self._is_open

    def _open(self) -> None:
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing() or cuda.get_sync_debug_mode() != 0:
            return  # the user looks for syncs themselves, or captures a graph
        self._show_before = warnings.showwarning
        warnings.showwarning = self._show  # type: ignore[assignment]
        filters: Any = warnings.filters
        filters.insert(0, _FILTER)
        _invalidate_filters()
        self._is_open = True
        try:
            cuda.set_sync_debug_mode("warn")
        except Exception:
            self._failed = True
            self._close()

    def at_stop(self) -> None:
        self._close()

    at_uninstall = at_stop

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        cuda = self._torch.cuda
        if cuda.get_sync_debug_mode() == 1:
            cuda.set_sync_debug_mode(0)
        filters: Any = warnings.filters
        if _FILTER in filters:
            filters.remove(_FILTER)
        _invalidate_filters()
        # If the script has put its own in place since, that one stays and hands over to nobody.
        if warnings.showwarning == self._show:
            warnings.showwarning = self._show_before

    def _show(self, message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        text = str(message)
        if _MESSAGE in text:
            if self._is_open and not self._in_timed_sync[0]:
                self._sites.at("hidden", sys._getframe(1)).add(0.0)
        elif "Synchronization debug mode" not in text:
            self._show_before(message, category, filename, lineno, *rest)


def _invalidate_filters() -> None:
    """Python keeps a cache per module of what the filters said; it has to be told. The name varies with the version."""
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        changed = getattr(warnings, name, None)
        if changed is not None:
            changed()
            return
