"""Gives back the room that a recording reserved and never used."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.store.header import MAX_HEADER_BYTES, SLOT_BYTES, parse_header
from flatout.store.liveness import is_alive

_BLOCK_BYTES = 1 << 20


def compact(path: Path) -> int:
    """Cut the unused tail of a dead process's recording and return the bytes gained.

    The file of a process that may be alive is left alone: cutting it under the writer's mapping would be a SIGBUS.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            header = parse_header(os.pread(file.fileno(), MAX_HEADER_BYTES + SLOT_BYTES, 0), str(path))
            if header is None or not _writer_is_dead(header.facts):
                return 0
            size = os.fstat(file.fileno()).st_size
            end = _end_of_use(file.fileno(), header.slots_at, size)
            os.ftruncate(file.fileno(), end)
            return size - end
    except (OSError, FlatoutError):
        return 0


def _writer_is_dead(facts: dict[str, object]) -> bool:
    pid = facts.get("pid")
    return isinstance(pid, int) and facts.get("host") == socket.gethostname() and not is_alive(pid)


def _end_of_use(fd: int, start: int, size: int) -> int:
    """Where the last slot ends that is not zero."""
    at = size
    while at > start:
        begin = max(start, at - _BLOCK_BYTES)
        used = len(os.pread(fd, at - begin, begin).rstrip(b"\0"))
        if used:
            return min(size, start + -(-(begin + used - start) // SLOT_BYTES) * SLOT_BYTES)
        at = begin
    return min(start, size)
