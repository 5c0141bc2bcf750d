"""What memory costs that another process has filled: to touch it for the first time, and to free it.

A loader's workers hand every batch over in such memory, and torch's take fresh one for each.
"""

from __future__ import annotations

import mmap
import os
import time
from functools import cache
from statistics import median

_MIB = 4
_TIMES = 3


@cache
def fresh_memory_ms() -> dict[str, float] | None:
    """Milliseconds a MiB on this machine, for "reading" and "freeing"; None where it cannot be measured."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        taken = [_taken_s() for _ in range(_TIMES)]
    except (OSError, MemoryError):
        return None
    reading, freeing = (1e3 * median(one) / _MIB for one in zip(*taken, strict=True))
    return {"reading": round(reading, 4), "freeing": round(freeing, 4)}


def _taken_s() -> tuple[float, float]:
    size, file = _MIB << 20, os.memfd_create("flatout-fresh", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, size)
        with mmap.mmap(file, size) as filled:
            filled[:] = b"\1" * size
        begun = time.perf_counter()
        with mmap.mmap(file, size) as mapped:
            mapped[:: mmap.PAGESIZE]  # touches every page
            read = time.perf_counter()
    finally:
        os.close(file)
    return read - begun, time.perf_counter() - read
