"""Following a file of rows while it grows: each look reads what is new and nothing twice."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flatout.errors import FlatoutError
from flatout.store.rows import Rows, head_of, whole_rows

_HEAD_BYTES = 1 << 16
# The room for an answer is made before it comes: most looks find a row or two.
_GLANCE_BYTES, _MOST_BYTES = 1 << 14, 8 << 20


class GrowingRows:
    """The rows that a file at `path` has gained since the last look. A file that is not there yet has none."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        # Whether there was more to read than one look takes.
        self.is_behind = False
        self._columns: tuple[str, ...] = ()
        self._at = 0

    def poll(self) -> Rows | None:
        """None where there is nothing new, or no file of rows."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return self._poll(fd)
        except (OSError, FlatoutError):
            return None
        finally:
            os.close(fd)

    def _poll(self, fd: int) -> Rows | None:
        if not self._columns:
            head = os.pread(fd, _HEAD_BYTES, 0)
            if not head:
                return None
            self._columns, self._at, _ = head_of(head, str(self.path))
        data = os.pread(fd, _GLANCE_BYTES, self._at)
        if len(data) == _GLANCE_BYTES:
            data = os.pread(fd, _MOST_BYTES, self._at)
        table, good, used = whole_rows(data, len(self._columns))
        self.is_behind = len(data) == _MOST_BYTES
        if not used:
            return None
        # The last row may be half written: it is looked at again.
        if not good[-1] and not self.is_behind:
            used -= used // len(good)
            table, good = table[:-1], good[:-1]
        self._at += used
        values: NDArray[np.float64] = table[good]
        return Rows(self._columns, values, int((~good).sum())) if len(values) else None
