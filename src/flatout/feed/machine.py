"""What this process may use of the machine, processors and memory, within every control group it is in."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# cgroup v1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60


def ranks_here(environ: Mapping[str, str] = os.environ) -> int:
    """The processes that train on this machine together."""
    text = environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdigit() else 1


# Processors


def processors(root: Path = Path("/")) -> float:
    """Those it may run on, or the time its control group grants if that is less. `root` stands for "/"."""
    allowed = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    base = _control_groups(root)
    found = [_text(level / "cpu.max") for level in _levels(base, _group_paths(root).get("", "/"))]
    found.append(f"{_text(base / 'cpu' / 'cpu.cfs_quota_us')} {_text(base / 'cpu' / 'cpu.cfs_period_us')}")
    quotas = [words.split() for words in found]
    return min([allowed, *(int(q[0]) / int(q[1]) for q in quotas if len(q) == 2 and q[0].isdigit() and q[1].isdigit())])


def cpus_of_rank(environ: Mapping[str, str] = os.environ, cpus: float | None = None) -> float:
    """The processors of this process, shared with the other ranks on this machine."""
    return (processors() if cpus is None else cpus) / ranks_here(environ)


def workers_allowed(environ: Mapping[str, str], allowed: float | None = None) -> int:
    """Workers for this rank: its part of the processors less one, which trains; at least one."""
    return max(1, math.floor(cpus_of_rank(environ, allowed) - 1 + 1e-9))


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


# Memory


@dataclass(frozen=True, slots=True)
class Memory:
    """This process's limit and how much of it is free; file cache that can be dropped counts as free."""

    limit_bytes: int
    free_bytes: int

    @property
    def free_share(self) -> float:
        """1.0 where nothing is known."""
        return self.free_bytes / self.limit_bytes if self.limit_bytes else 1.0


def memory(root: Path = Path("/")) -> Memory:
    """The tightest of the machine's memory and every control group above this process. `root` stands for "/"."""
    found = [_machine(root), *_limits_of_groups(root)]
    return min((m for m in found if m is not None), key=lambda m: m.free_bytes, default=Memory(0, 0))


def free_bytes(root: Path = Path("/")) -> int | None:
    """None where the system does not say."""
    found = memory(root)
    return found.free_bytes if found.limit_bytes else None


def _machine(root: Path) -> Memory | None:
    facts = _fields(root / "proc" / "meminfo")
    if "MemTotal:" not in facts or "MemAvailable:" not in facts:
        return None
    return Memory(facts["MemTotal:"] << 10, facts["MemAvailable:"] << 10)


def _limits_of_groups(root: Path) -> list[Memory | None]:
    """One for every level of the v1 memory controller, or of the v2 tree; None where it has no limit."""
    paths, base = _group_paths(root), _control_groups(root)
    if (base / "memory").is_dir() and "memory" in paths:
        names, prefix = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
        levels = _levels(base / "memory", paths["memory"])
    else:
        names, prefix = ("memory.max", "memory.current"), ""
        levels = _levels(base, paths.get("", "/"))
    return [_limited(level, *names, prefix) for level in levels]


def _limited(level: Path, limit_name: str, used_name: str, prefix: str) -> Memory | None:
    limit, used = _text(level / limit_name).strip(), _text(level / used_name).strip()
    if not limit.isdigit() or not used.isdigit() or int(limit) >= _UNLIMITED_BYTES:
        return None
    # A training that reads its files again and again has most of them among the active ones.
    facts = _fields(level / "memory.stat")
    cache_bytes = sum(facts.get(f"{prefix}{name}", 0) for name in ("inactive_file", "active_file"))
    return Memory(int(limit), max(0, int(limit) - int(used) + cache_bytes))


# Control groups


def _control_groups(root: Path) -> Path:
    return root / "sys" / "fs" / "cgroup"


def _group_paths(root: Path) -> dict[str, str]:
    """By controller, where this process is; "" stands for the tree of v2."""
    paths = {}
    for line in _text(root / "proc" / "self" / "cgroup").split("\n"):
        _, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        if found:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _levels(mount: Path, inside: str) -> list[Path]:
    """The process's folder and those above it; a container that names a folder of the host sees only the mount."""
    folder = mount / inside.strip("/")
    if "/.." in inside or not folder.is_dir():
        return [mount]
    return [folder, *(parent for parent in folder.parents if parent == mount or mount in parent.parents)]


def _fields(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).split("\n"))
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


# When memory runs short and there are more workers than the script asked for. A dataset may keep what it has read, in
# each worker separately: four times the workers keep four times as much. Half of the workers are restarted, since a
# new one has kept nothing yet. Where that does not help for long, their number is reduced, in the end to what the
# script asked for.

# Of the machine's memory, or of the control group's, what is left; in a large one so many bytes. A multiple is plenty.
_SHORT, _SHORT_BYTES, _PLENTY = 0.12, 16 << 30, 2.5
_LOOK_S, _LOOK_AT_PLENTY_S = 1.0, 5.0
# A worker finishes the sample it is at before it goes.
_TAKES_EFFECT_S = 4.0
_HELPS_FOR_S = 6.0


@dataclass(frozen=True, slots=True)
class Relief:
    """Have so many `workers` from now on, `renewed` of them fresh ones."""

    workers: int
    renewed: int = 0


class Shortage:
    """Asked at every batch; looks every few seconds."""

    def __init__(
        self,
        asked_for: int,
        look: Callable[[], Memory] = memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`asked_for`: the workers that the script wants by itself; it has one at least."""
        self._asked_for = max(1, asked_for)
        self._look = look
        self._clock = clock
        self._next_look_s = 0.0
        self._relieved_s: float | None = None

    def relief(self, workers: int) -> Relief | None:
        """None where nothing is to be done."""
        now_s = self._clock()
        if workers <= self._asked_for or now_s < self._next_look_s:
            return None
        there = self._look()
        least_bytes = min(_SHORT * there.limit_bytes, _SHORT_BYTES)
        self._next_look_s = now_s + (_LOOK_AT_PLENTY_S if there.free_bytes > _PLENTY * least_bytes else _LOOK_S)
        if there.free_bytes >= least_bytes:
            return None
        helped_s = now_s - self._relieved_s if self._relieved_s is not None else _HELPS_FOR_S
        self._relieved_s, self._next_look_s = now_s, now_s + _TAKES_EFFECT_S
        if helped_s < _HELPS_FOR_S:
            return Relief(max(self._asked_for, workers // 2))
        return Relief(workers, renewed=workers // 2)
