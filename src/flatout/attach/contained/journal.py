"""What the processes of a trial tell each other about the overlay: that it changed, and which originals are gone.

Two words in shared memory say so without a system call; the list of what is gone only grows.
"""

from __future__ import annotations

import mmap
import os
import posix
import time

_WORDS = 2
_TOKEN, _HIDES = 0, 1


class Journal:
    def __init__(self, folder: str) -> None:
        self._log = f"{folder}/overlay-gone"
        descriptor = posix.open(f"{folder}/overlay-state", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            posix.ftruncate(descriptor, _WORDS * 8)
            shared = mmap.mmap(descriptor, _WORDS * 8)
        finally:
            posix.close(descriptor)
        # words[0] is 0 until anything is written, then another number after every change.
        self.words = memoryview(shared).cast("Q")
        self.gone: set[str] = set()
        self._read = 0

    @property
    def hides_originals(self) -> bool:
        """Whether an original was ever replaced or removed: until then a link to one can be trusted."""
        return self.words[_HIDES] != 0

    def changed(self) -> None:
        """Tell every process. A fresh number each time, so no two writers at once can hide each other's change."""
        self.words[_TOKEN] = (time.monotonic_ns() << 16 | os.getpid() & 0xFFFF) & 0xFFFF_FFFF_FFFF_FFFF

    def hides(self) -> None:
        self.words[_HIDES] = 1

    def bury(self, path: str) -> None:
        """The original at `path`, with all below, is not to be seen any more."""
        descriptor = posix.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            posix.write(descriptor, os.fsencode(path) + b"\0")
        finally:
            posix.close(descriptor)
        self.gone.add(path)
        self.hides()
        self.changed()

    def catch_up(self) -> None:
        """Read what others have buried since."""
        begun = self._read
        try:
            if posix.stat(self._log).st_size == begun:
                return
            descriptor = posix.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            size = posix.fstat(descriptor).st_size
            text = posix.pread(descriptor, size - begun, begun)
        finally:
            posix.close(descriptor)
        whole = text.rfind(b"\0") + 1
        self._read = begun + whole
        self.gone.update(os.fsdecode(path) for path in text[:whole].split(b"\0") if path)
