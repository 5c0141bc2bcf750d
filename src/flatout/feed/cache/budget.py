"""How much memory the cache may take: what the cgroup and the machine leave, and what the folder has free."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..host_memory import memory

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
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
