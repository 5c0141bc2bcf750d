"""How much of the machine a loader may use, and how much of it a worker does use."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from .processors import processors


def cpus_of_rank(environ: Mapping[str, str] = os.environ, cpus: float | None = None) -> float:
    """The CPUs of this process, shared with the other ranks on this node."""
    try:
        ranks = max(1, int(environ.get("LOCAL_WORLD_SIZE") or 1))
    except ValueError:
        ranks = 1
    return (processors() if cpus is None else cpus) / ranks


class CpuClock:
    """Time in which this thread computed or wanted to: waiting for a CPU that others use counts as computing."""

    def __init__(self) -> None:
        # Of that, waiting for a CPU, when it was last read.
        self.waiting_ns = 0
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def read_ns(self) -> int:
        if self._file < 0:
            return time.process_time_ns()
        running_ns, waiting_ns, *_ = os.pread(self._file, 128, 0).split()
        self.waiting_ns = int(waiting_ns)
        return int(running_ns) + self.waiting_ns
