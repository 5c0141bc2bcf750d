"""How many processors this process may use: affinity, the control group's quota, and the other ranks of the machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")


def processors() -> float:
    """Of this process: those it may run on, or the time its control group grants if that is less."""
    allowed = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    return min([allowed, *_quotas()])


def workers_allowed(environ: Mapping[str, str], allowed: float | None = None) -> int:
    """Workers for this rank: its part of the processors less one, which trains; at least one."""
    ranks = int(environ.get("LOCAL_WORLD_SIZE") or 1)
    mine = (processors() if allowed is None else allowed) / max(1, ranks)
    return max(1, math.floor(mine - 1 + 1e-9))


def _quotas() -> list[float]:
    """Of the control group and those above it."""
    found = []
    for folder in _folders():
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                found.append(int(quota) / int(period))
        except (OSError, ValueError):
            pass
    try:
        quota_us = int((_V1 / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            found.append(quota_us / int((_V1 / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return found


def _folders() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [_V2]
    own = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "/")
    folder = _V2 / own.lstrip("/")
    return [folder, *[parent for parent in folder.parents if _V2 in (parent, *parent.parents)]]


# How much of the machine this rank may use, and how much a worker does use.


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
