"""How much memory processes take together, shared pages counted once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def total_pss_bytes(pids: Iterable[int]) -> int:
    """The sum of the proportional set sizes."""
    return sum(_pss_bytes(pid) for pid in pids)


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"no Pss in smaps_rollup of process {pid}")
