"""How much memory the cache may take: what the cgroup and the machine leave, and what the folder has free."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
# cgroup v1 writes "no limit" as the largest multiple of a page.
_UNLIMITED_BYTES = 1 << 60
_SHARE_OF_FREE = 0.5
_SHARE_OF_FOLDER = 0.9


def parse_bytes(size: str | int | float) -> int:
    """`"20GB"`, `"512 MiB"`, `1e9` → bytes."""
    if isinstance(size, (int, float)):
        found = int(size)
    else:
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(f'a cache\'s budget is a size like "20GB" or "512MiB", got {size!r}')
        scale = _UNITS[match[2].upper()]
        if match[3]:
            scale = 1024 ** "BKMGT".index(match[2].upper() or "B")
        found = int(float(match[1]) * scale)
    if found <= 0:
        raise ValueError(f"a cache's budget must be above 0, got {size!r}")
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process's memory limit is and how much of it is free; file cache that can be dropped counts as free."""

    limit_bytes: int
    free_bytes: int


def memory(root: Path = Path("/")) -> Memory:
    """The tightest of the machine's memory and every cgroup above this process. `root` stands for "/"."""
    found = [_machine(root), *_cgroups(root)]
    return min((m for m in found if m is not None), key=lambda m: m.free_bytes, default=Memory(0, 0))


def folder_free_bytes(folder: str) -> int:
    """What the file system of `folder` can still hold for this user; 0 where it cannot be asked."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return 0
    return facts.f_bavail * facts.f_frsize


def default_budget_bytes(folder: str, root: Path = Path("/")) -> int:
    """Half of the free memory, and never over nine tenths of what the folder has free."""
    return int(min(memory(root).free_bytes * _SHARE_OF_FREE, folder_free_bytes(folder) * _SHARE_OF_FOLDER))


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
    used, cache = level / "memory.usage_in_bytes", _fields(level / "memory.stat").get("total_inactive_file", 0)
    return _limited(level / "memory.limit_in_bytes", used, cache)


def _v2(level: Path) -> Memory | None:
    used, cache = level / "memory.current", _fields(level / "memory.stat").get("inactive_file", 0)
    return _limited(level / "memory.max", used, cache)


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
