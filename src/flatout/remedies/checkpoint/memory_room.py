"""How many bytes of memory this process may still take: what the machine has left, and its control group."""

from __future__ import annotations

import os
from collections.abc import Iterator

_CGROUPS = "/sys/fs/cgroup"


def available_bytes() -> int | None:
    """None where the system does not say."""
    known = [room for room in (_of_machine(), *_of_groups()) if room is not None]
    return min(known) if known else None


def _of_machine() -> int | None:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _of_groups() -> Iterator[int | None]:
    """The group of this process and all above it, in either version of the kernel's interface."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        root = os.path.join(_CGROUPS, "memory") if controllers else _CGROUPS
        limit, used = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        folder = os.path.normpath(os.path.join(root, path.strip("/")))
        while folder.startswith(root):
            yield _of_group(folder, f"memory.{limit}", f"memory.{used}")
            folder = os.path.dirname(folder)


def _of_group(folder: str, limit: str, used: str) -> int | None:
    most, now = _text(os.path.join(folder, limit)).strip(), _text(os.path.join(folder, used)).strip()
    if not most.isdigit() or not now.isdigit():
        return None
    return max(0, int(most) - int(now) + _reclaimable(folder))


def _reclaimable(folder: str) -> int:
    """File pages that nobody uses just now are given up when somebody needs memory."""
    for line in _text(os.path.join(folder, "memory.stat")).splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
