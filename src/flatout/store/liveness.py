"""Whether the process that writes a run is still alive."""

from __future__ import annotations

import os


def process_start(pid: int) -> str | None:
    """A mark that tells this process from a later one with the same number: its start in kernel ticks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command's name is in parentheses and may hold anything.
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_alive(pid: int, start: str | None = None) -> bool:
    """Is this process running? With `start`, a later process of the same number does not count."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    if _is_zombie(pid):
        return False
    now = process_start(pid)
    return start is None or now is None or now == start


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
