"""How many processors this process may use: affinity, the control group's quota, and the other ranks of the machine."""

from __future__ import annotations

import math
import os
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
