"""How much more may be kept: a tenth of the memory that is free, of a device and of the host, asked anew each time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...feed.host_memory import free_bytes as available_bytes

_SHARE = 0.1


class Room:
    """What is kept where, in bytes."""

    def __init__(self, free_bytes: Callable[[str], int | None]) -> None:
        self._free_bytes = free_bytes
        self._taken: dict[str, int] = {}

    @property
    def taken_bytes(self) -> int:
        return sum(self._taken.values())

    def take(self, wanted: Mapping[str, int]) -> bool:
        """Whether there is room for it; then it counts as taken."""
        for kind, size in wanted.items():
            free, taken = self._free_bytes(kind), self._taken.get(kind, 0)
            if free is None or taken + size > _SHARE * (free + taken):
                return False
        for kind, size in wanted.items():
            self._taken[kind] = self._taken.get(kind, 0) + size
        return True


def free_bytes(torch: Any, kind: str) -> int | None:
    """Of the host, a part for each of the processes that train on it; None where it is not known."""
    if kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    if kind != "cpu":
        return None
    known = available_bytes()
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return known // max(1, int(ranks) if ranks.isdigit() else 1) if known is not None else None
