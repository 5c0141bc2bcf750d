"""How much memory this process may take: the machine's, and that of every control group it is in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# cgroup v1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process's memory limit is and how much of it is free; file cache that can be dropped counts as free."""

    limit_bytes: int
    free_bytes: int

    @property
    def free_share(self) -> float:
        """1.0 where nothing is known."""
        return self.free_bytes / self.limit_bytes if self.limit_bytes else 1.0


def memory(root: Path = Path("/")) -> Memory:
    """The tightest of the machine's memory and every cgroup above this process. `root` stands for "/"."""
    found = [_machine(root), *_cgroups(root)]
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


def _cgroups(root: Path) -> list[Memory | None]:
    """One for every level of the v1 memory controller, or of the v2 tree, that has a limit."""
    paths = {}
    for line in _text(root / "proc" / "self" / "cgroup").split("\n"):
        _, _, rest = line.partition(":")
        controllers, found, path = rest.partition(":")
        if found:
            paths.update(dict.fromkeys(controllers.split(","), path))
    base = root / "sys" / "fs" / "cgroup"
    if (base / "memory").is_dir() and "memory" in paths:
        return [_v1(level) for level in _levels(base / "memory", paths["memory"])]
    return [_v2(level) for level in _levels(base, paths.get("", "/"))]


def _levels(mount: Path, inside: str) -> list[Path]:
    """The process's folder and those above it; a container that names a folder of the host sees only the mount."""
    folder = mount / inside.strip("/")
    if "/.." in inside or not folder.is_dir():
        return [mount]
    return [folder, *(parent for parent in folder.parents if parent == mount or mount in parent.parents)]


def _v1(level: Path) -> Memory | None:
    cache = _file_cache(level, "total_inactive_file", "total_active_file")
    return _limited(level / "memory.limit_in_bytes", level / "memory.usage_in_bytes", cache)


def _v2(level: Path) -> Memory | None:
    cache = _file_cache(level, "inactive_file", "active_file")
    return _limited(level / "memory.max", level / "memory.current", cache)


def _file_cache(level: Path, *names: str) -> int:
    """A training that reads its files again and again has most of them among the active ones."""
    facts = _fields(level / "memory.stat")
    return sum(facts.get(name, 0) for name in names)


def _limited(limit: Path, used: Path, cache_bytes: int) -> Memory | None:
    limit_text, used_text = _text(limit).strip(), _text(used).strip()
    if not limit_text.isdigit() or not used_text.isdigit() or int(limit_text) >= _UNLIMITED_BYTES:
        return None
    return Memory(int(limit_text), max(0, int(limit_text) - int(used_text) + cache_bytes))


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
