"""How much memory the training process takes, step by step.

What the process itself sees at the end of its steps is closer in time than what is sampled from outside: a run of
seconds has enough of it to tell growth from noise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..context import Context, Watcher

# At most so often, and so many in all: then every other is dropped, and they come half as often.
_EVERY_S, _MOST = 0.04, 256
_FIRST_WRITE = 16


class MemoryWatch(Watcher):
    """Reads what the kernel counts for this process; nothing, where it does not."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._file = -1
        self._begin()

    def _begin(self) -> None:
        self._every_s, self._next = _EVERY_S, 0.0
        self._points: list[tuple[int, int]] = []  # step, bytes
        self._write_at = _FIRST_WRITE

    def at_begin(self) -> None:
        if self._file < 0:
            try:
                self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
                self._page = os.sysconf("SC_PAGE_SIZE")
            except (OSError, ValueError):
                self._file = -1

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        if now >= self._next and self._file >= 0:
            self._next = now + self._every_s
            self._read(index)
        return False

    def _read(self, index: int) -> None:
        try:
            _, resident, shared, *_ = os.pread(self._file, 128, 0).split()
            # Without files that are mapped: their pages come and go.
            self._points.append((index, (int(resident) - int(shared)) * self._page))
        except (OSError, ValueError):
            self.at_stop()
            return
        if len(self._points) >= _MOST:
            del self._points[1::2]
            self._every_s *= 2
            self._write()
        elif len(self._points) == self._write_at:
            # In doublings, so that a run that is killed has left most of it.
            self._write_at *= 2
            self._write()

    def _write(self) -> None:
        steps, sizes = zip(*self._points, strict=True) if self._points else ((), ())
        self._output().text("memory", {"steps": steps, "bytes": sizes})

    def at_fork(self) -> None:
        # The file is that of the parent's numbers.
        self.at_stop()
        self._begin()
        self.at_begin()

    def at_stop(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def at_finish(self) -> None:
        if self._points:
            self._write()
