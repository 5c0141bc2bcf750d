"""The mount table of a process, /proc/<pid>/mountinfo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """One mount. `root` is the folder of the file system that is mounted, `options` those of the file system."""

    device: str
    root: str
    mount_point: str
    type: str
    source: str
    options: tuple[str, ...]


def read_mounts(mountinfo: Path) -> list[Mount]:
    """In the order of mounting; empty where the table cannot be read."""
    try:
        text = mountinfo.read_bytes().decode(errors="surrogateescape")
    except OSError:
        return []
    mounts = []
    for line in text.split("\n"):
        before, found, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if found and len(fields) >= 5 and len(tail) >= 2:
            options = tuple(tail[2].split(",")) if len(tail) > 2 else ()
            mounts.append(Mount(fields[2], _plain(fields[3]), _plain(fields[4]), tail[0], _plain(tail[1]), options))
    return mounts


def _plain(text: str) -> str:
    """Space, tab, newline and backslash are written as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
