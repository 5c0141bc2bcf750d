"""Anonymous memory that checkpoints are serialised into, kept for the next one where it is little."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from ...feed.host_memory import free_bytes

# Of the memory that is left, what a checkpoint may take, and what may lie there between two for the next one.
_MOST, _MOST_KEPT = 0.5, 1 / 32


class NoRoom(Exception):
    """The checkpoint does not fit into memory a second time."""


class _Limited(io.BufferedWriter):
    """Memory to write into, up to a size. What is over is dropped: torch's writer does not bear an error midway."""

    def __init__(self, memory: int, most: int | None) -> None:
        super().__init__(io.FileIO(memory, "wb", closefd=False), 1 << 20)
        self._left = sys.maxsize if most is None else most

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def write(self, data: Any) -> int:
        self._left -= len(data)
        return len(data) if self.is_over else super().write(data)


class Memory:
    """Each piece is a descriptor of its own, with one checkpoint in it."""

    def __init__(self) -> None:
        # Of checkpoints that are written: one at most. Without a lock: a script may save in a signal's handler, too.
        self._spare: list[int] = []

    def filled(self, serialise: Callable[[Any], object]) -> int:
        """What `serialise(file)` writes. Raises NoRoom, and whatever it raises."""
        room = free_bytes()
        try:
            memory = self._empty()
        except OSError as error:
            raise NoRoom from error
        try:
            with _Limited(memory, None if room is None else int(_MOST * room)) as file:
                serialise(file)
                if file.is_over:
                    raise NoRoom
            os.ftruncate(memory, os.lseek(memory, 0, os.SEEK_CUR))
        except BaseException:
            os.close(memory)
            raise
        return memory

    def _empty(self) -> int:
        try:
            memory = self._spare.pop()
        except IndexError:
            return os.memfd_create("flatout-checkpoint", os.MFD_CLOEXEC)
        os.lseek(memory, 0, os.SEEK_SET)
        return memory

    def done_with(self, memory: int, size: int) -> None:
        """Kept for the next checkpoint where it is little, for fresh memory is slow; else freed, which is slow as well:
        not while the training waits.
        """
        room = free_bytes()
        if not self._spare and (room is None or size <= _MOST_KEPT * room):
            self._spare.append(memory)
            return
        try:
            threading.Thread(target=os.close, args=(memory,), name="flatout-frees", daemon=True).start()
        except RuntimeError:
            os.close(memory)  # at the end of the script, which may start no more threads

    def close(self) -> None:
        while self._spare:
            os.close(self._spare.pop())
