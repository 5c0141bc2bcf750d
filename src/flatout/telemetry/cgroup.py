"""What a container may use: CPU quota, throttling, memory limit, OOM kills; cgroup v1 and v2.

A limit may sit at any level above the process, so each is taken from the tightest level of the whole path.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flatout.records.sample import CgroupSample
from flatout.store.mounts import read_mounts
from flatout.telemetry.procfile import ProcFile, read_file

# cgroup v1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60


class CgroupSampler:
    """Reads the cgroup of `pid`. `root` stands for "/", so that tests can read a file tree of their own."""

    def __init__(self, pid: int | None = None, root: Path = Path("/")) -> None:
        proc = root / "proc" / ("self" if pid is None else str(pid))
        paths, mounts = _paths(proc / "cgroup"), _mounts(proc / "mountinfo", root)
        unified = _levels(paths, mounts, "")
        # A machine may mount v1 controllers beside an empty v2 tree: v1 wins where it has the controller.
        v1_cpu, v1_memory = _levels(paths, mounts, "cpu"), _levels(paths, mounts, "memory")
        self._cpu = (v1_cpu, _CPU_V1) if v1_cpu else (unified, _CPU_V2)
        self._memory = (v1_memory, _MEMORY_V1) if v1_memory else (unified, _MEMORY_V2)
        # Only v2 has it; that of the root group is the machine's, which is in /proc.
        self._pressure = ProcFile(unified[0] / "cpu.pressure") if unified else None

    def sample(self) -> CgroupSample:
        pressure_s = None if self._pressure is None else _some_total_s(self._pressure.read())
        return CgroupSample(*_read_cpu(*self._cpu), *_read_memory(*self._memory), pressure_s)


def cpus_allowed(pid: int | None = None, root: Path = Path("/")) -> float:
    """How many cores the process may really use: the smaller of its affinity and its cgroup's quota."""
    try:
        affinity = float(len(os.sched_getaffinity(pid or 0)))
    except OSError:
        affinity = float(os.cpu_count() or 1)
    quota_cores = CgroupSampler(pid, root).sample().cpu_quota_cores
    return affinity if quota_cores is None else min(affinity, quota_cores)


class _Cpu(NamedTuple):
    """How one version of cgroups tells the quota, and the time a group was throttled."""

    quota_cores: Callable[[Path], float | None]
    throttled: str  # in cpu.stat
    per_s: float


def _quota_v1(level: Path) -> float | None:
    quota_us, period_us = _number(level / "cpu.cfs_quota_us"), _number(level / "cpu.cfs_period_us")
    return None if quota_us is None or not period_us or quota_us <= 0 else quota_us / period_us


def _quota_v2(level: Path) -> float | None:
    fields = _text(level / "cpu.max").split() or ["max"]
    return None if fields[0] == "max" or len(fields) < 2 else int(fields[0]) / int(fields[1])


_CPU_V1, _CPU_V2 = _Cpu(_quota_v1, "throttled_time", 1e9), _Cpu(_quota_v2, "throttled_usec", 1e6)


class _Memory(NamedTuple):
    """In which files one version of cgroups keeps what."""

    limit: str
    used: str
    cache: str  # in memory.stat
    kills: str


_MEMORY_V1 = _Memory("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
_MEMORY_V2 = _Memory("memory.max", "memory.current", "inactive_file", "memory.events")


def _read_cpu(levels: list[Path], files: _Cpu) -> tuple[float | None, float | None]:
    if not levels:
        return None, None
    cores, level = _tightest(levels, files.quota_cores)
    throttled = _field(level / "cpu.stat", files.throttled)
    return cores, None if throttled is None else throttled / files.per_s


def _read_memory(levels: list[Path], files: _Memory) -> tuple[float | None, float | None, float | None, float | None]:
    if not levels:
        return None, None, None, None

    def limit_of(level: Path) -> float | None:
        limit = _number(level / files.limit)
        return None if limit is None or limit >= _UNLIMITED_BYTES else limit

    limit, level = _tightest(levels, limit_of)
    cache, kills = _field(level / "memory.stat", files.cache), _field(levels[0] / files.kills, "oom_kill")
    return limit, _number(level / files.used), cache, kills


def _tightest(levels: list[Path], limit_of: Callable[[Path], float | None]) -> tuple[float | None, Path]:
    limits = [(limit, level) for level in levels if (limit := limit_of(level)) is not None]
    return min(limits, default=(None, levels[0]))


def _paths(cgroup: Path) -> dict[str, str]:
    """The process's path under each controller; the v2 tree has the empty name."""
    paths = {}
    for line in _text(cgroup).split("\n"):
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


def _some_total_s(pressure: bytes | None) -> float | None:
    """What the first line of a pressure file counts: some avg10=… avg60=… avg300=… total=<microseconds>."""
    first, _, _ = (pressure or b"").partition(b"\n")
    _, found, total = first.partition(b"total=")
    return int(total) / 1e6 if first.startswith(b"some") and found else None


def _text(path: Path) -> str:
    """Empty where there is no such file."""
    return (read_file(path) or b"").decode(errors="surrogateescape")


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None


def _field(path: Path, name: str) -> float | None:
    for line in _text(path).split("\n"):
        key, _, value = line.partition(" ")
        if key == name:
            return float(value)
    return None
