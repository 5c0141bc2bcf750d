"""What a container may use: CPU quota, throttling, memory limit, OOM kills; cgroup v1 and v2.

A limit may sit at any level above the process, so each is taken from the tightest level of the whole path.
"""

from __future__ import annotations

import os
from pathlib import Path

from flatout.records.sample import CgroupSample
from flatout.store.mounts import read_mounts

# cgroup v1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60


class CgroupSampler:
    """Reads the cgroup of `pid`. `root` stands for "/", so that a made file tree can be read as well."""

    def __init__(self, pid: int | None = None, root: Path = Path("/")) -> None:
        proc = root / "proc" / ("self" if pid is None else str(pid))
        paths, mounts = _paths(proc / "cgroup"), _mounts(proc / "mountinfo", root)
        self._cpu: _CpuV1 | _CpuV2 | None = None
        self._memory: _MemoryV1 | _MemoryV2 | None = None
        # A machine may mount v1 controllers beside an empty v2 tree: v1 wins where it has the controller.
        if levels := _levels(paths, mounts, "cpu"):
            self._cpu = _CpuV1(levels)
        elif levels := _levels(paths, mounts, ""):
            self._cpu = _CpuV2(levels)
        if levels := _levels(paths, mounts, "memory"):
            self._memory = _MemoryV1(levels)
        elif levels := _levels(paths, mounts, ""):
            self._memory = _MemoryV2(levels)

    def sample(self) -> CgroupSample:
        quota_cores, throttled_s = self._cpu.read() if self._cpu else (None, None)
        limit, current, cache, oom_kills = self._memory.read() if self._memory else (None, None, None, None)
        return CgroupSample(quota_cores, throttled_s, limit, current, cache, oom_kills)


def cpus_allowed(pid: int | None = None, root: Path = Path("/")) -> float:
    """How many cores the process may really use: the smaller of its affinity and its cgroup's quota."""
    try:
        affinity = float(len(os.sched_getaffinity(pid or 0)))
    except OSError:
        affinity = float(os.cpu_count() or 1)
    quota_cores = CgroupSampler(pid, root).sample().cpu_quota_cores
    return affinity if quota_cores is None else min(affinity, quota_cores)


class _CpuV2:
    def __init__(self, levels: list[Path]) -> None:
        self._levels = levels

    def read(self) -> tuple[float | None, float | None]:
        quotas = [(quota, level) for level in self._levels if (quota := self._quota_cores(level)) is not None]
        cores, level = min(quotas, default=(None, self._levels[0]))
        throttled_us = _field(level / "cpu.stat", "throttled_usec")
        return cores, None if throttled_us is None else throttled_us / 1e6

    @staticmethod
    def _quota_cores(level: Path) -> float | None:
        fields = (_text(level / "cpu.max") or "max").split()
        return None if fields[0] == "max" or len(fields) < 2 else int(fields[0]) / int(fields[1])


class _CpuV1:
    def __init__(self, levels: list[Path]) -> None:
        self._levels = levels

    def read(self) -> tuple[float | None, float | None]:
        quotas = [(quota, level) for level in self._levels if (quota := self._quota_cores(level)) is not None]
        cores, level = min(quotas, default=(None, self._levels[0]))
        throttled_ns = _field(level / "cpu.stat", "throttled_time")
        return cores, None if throttled_ns is None else throttled_ns / 1e9

    @staticmethod
    def _quota_cores(level: Path) -> float | None:
        quota_us, period_us = _number(level / "cpu.cfs_quota_us"), _number(level / "cpu.cfs_period_us")
        return None if quota_us is None or not period_us or quota_us <= 0 else quota_us / period_us


class _MemoryV2:
    def __init__(self, levels: list[Path]) -> None:
        self._levels = levels

    def read(self) -> tuple[float | None, float | None, float | None, float | None]:
        limits = [(limit, level) for level in self._levels if (limit := _number(level / "memory.max")) is not None]
        limit, level = min(limits, default=(None, self._levels[0]))
        return (
            limit,
            _number(level / "memory.current"),
            _field(level / "memory.stat", "inactive_file"),
            _field(self._levels[0] / "memory.events", "oom_kill"),
        )


class _MemoryV1:
    def __init__(self, levels: list[Path]) -> None:
        self._levels = levels

    def read(self) -> tuple[float | None, float | None, float | None, float | None]:
        limits = [(limit, level) for level in self._levels if (limit := self._limit(level)) is not None]
        limit, level = min(limits, default=(None, self._levels[0]))
        return (
            limit,
            _number(level / "memory.usage_in_bytes"),
            _field(level / "memory.stat", "total_inactive_file"),
            _field(self._levels[0] / "memory.oom_control", "oom_kill"),
        )

    @staticmethod
    def _limit(level: Path) -> float | None:
        limit = _number(level / "memory.limit_in_bytes")
        return None if limit is None or limit >= _UNLIMITED_BYTES else limit


def _paths(cgroup: Path) -> dict[str, str]:
    """The process's path under each controller; the v2 tree has the empty name."""
    paths = {}
    for line in (_text(cgroup) or "").split("\n"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                paths[controller] = fields[2]
    return paths


def _mounts(mountinfo: Path, root: Path) -> dict[str, tuple[str, Path]]:
    """Where each controller's tree is mounted, and which of its folders is the mount's root."""
    mounts = {}
    for mount in read_mounts(mountinfo):
        if mount.type in ("cgroup", "cgroup2"):
            names = ("",) if mount.type == "cgroup2" else mount.options
            mounts.update({name: (mount.root, root / mount.mount_point.lstrip("/")) for name in names})
    return mounts


def _levels(paths: dict[str, str], mounts: dict[str, tuple[str, Path]], controller: str) -> list[Path]:
    """The process's folder and those above it up to the mount, innermost first; empty without that controller."""
    if controller not in paths or controller not in mounts:
        return []
    mount_root, mount_point = mounts[controller]
    inside = paths[controller]
    if mount_root != "/" and (inside == mount_root or inside.startswith(mount_root + "/")):
        inside = inside[len(mount_root) :]
    folder = mount_point / inside.strip("/")
    if "/.." in inside or not folder.is_dir():
        # A container without a cgroup namespace names a folder of the host; what it can see is its own mount.
        return [mount_point]
    above = [parent for parent in folder.parents if parent == mount_point or mount_point in parent.parents]
    return [folder, *above]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> float | None:
    for line in (_text(path) or "").split("\n"):
        key, _, value = line.partition(" ")
        if key == name:
            return float(value)
    return None
