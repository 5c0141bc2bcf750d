"""Files of /proc and /sys: read once, or kept open and read again at half the cost; and rates of their counters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_CHUNK_BYTES = 1 << 16
_LINE_BYTES = 256


def read_file(path: Path) -> bytes | None:
    """None where it is gone or forbidden."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def list_folder(path: Path) -> list[str]:
    """Empty where it is gone or forbidden."""
    try:
        return os.listdir(path)
    except OSError:
        return []


class ProcFile:
    """Reads a kernel file from its beginning, again and again. Gone or forbidden gives None, never an exception.

    A kept /proc/<pid> file stays bound to its process: when the number is given to another, it reads as gone.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._fd: int | None = None

    def read(self) -> bytes | None:
        return self._ask(self._whole)

    def read_line(self) -> bytes | None:
        """A file of one short line, which the kernel hands out at once: half of the calls."""
        return self._ask(lambda fd: os.pread(fd, _LINE_BYTES, 0))

    def _ask(self, read: Callable[[int], bytes]) -> bytes | None:
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return read(self._fd)
        except OSError:
            self.close()
            return None

    def _whole(self, fd: int) -> bytes:
        # The kernel hands long files out in pages, so a short read is no end: only an empty one is.
        data = os.pread(fd, _CHUNK_BYTES, 0)
        while more := os.pread(fd, _CHUNK_BYTES, len(data)):
            data += more
        return data

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()


class Rate:
    """A counter's change per second. The first reading has nothing to compare with, so it is not measured."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, count: float | None, t_s: float) -> float | None:
        if count is None:
            self._last = None
            return None
        last, self._last = self._last, (count, t_s)
        # A counter that fell was reset: no rate can be told from it.
        if last is None or t_s <= last[1] or count < last[0]:
            return None
        return (count - last[0]) / (t_s - last[1])
