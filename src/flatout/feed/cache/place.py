"""Where a dataset's cache is and how large it may be: decided once, the same in every process of the host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.utils.data as data

from ...records.message import Message, message
from ..machine import memory
from .cut import Cut
from .key import dataset_key
from .probe import probe
from .segment import PREFIX, SHARED_MEMORY, Unavailable, reap

_LEAST_USEFUL_BYTES = 64 << 20
_SHARE_OF_FOLDER = 0.9
_SLACK = 1.25
Note = Callable[[Message], None]


@dataclass(frozen=True, slots=True)
class Place:
    """All that another process needs to find the same cache."""

    folder: str
    name: str
    samples: int
    budget_bytes: int
    policy: str
    sample_bytes: float
    cut: Cut | None


def find_place(dataset: Any, budget_bytes: int | None, policy: str, spill: str | None, note: Note) -> Place:
    """Raises Unavailable where the dataset cannot be cached."""
    samples = _length(dataset)
    looked = probe(dataset, samples)
    if looked.refusal is not None:
        raise Unavailable(looked.refusal)
    whole_bytes = int(samples * (looked.sample_bytes + 64) * _SLACK) + samples * 64 + (1 << 20)
    folder, most_bytes = _room(budget_bytes, whole_bytes, spill, note)
    # The policy is no part of the name: ranks that differ in it must not split the cache.
    name = f"{PREFIX}{os.geteuid()}-{dataset_key(dataset)}"
    if looked.cut is not None:
        name += f"-{looked.cut.kept}"
    return Place(folder, name, samples, most_bytes, policy, looked.sample_bytes, looked.cut)


def may_take(nbytes: int) -> bool:
    """Leave the training its memory: a cgroup at its limit kills, it does not refuse."""
    now = memory()
    return now.free_bytes >= nbytes + max(nbytes, now.limit_bytes // 20)


def _length(dataset: Any) -> int:
    if isinstance(dataset, data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise Unavailable(message("cache.no_index"))
    try:
        samples = len(dataset)
    except (TypeError, NotImplementedError):
        raise Unavailable(message("cache.no_length")) from None
    if samples == 0:
        raise Unavailable(message("cache.empty"))
    return samples


def _room(budget_bytes: int | None, whole_bytes: int, spill: str | None, note: Note) -> tuple[str, int]:
    """The folder to keep the samples in, and how many bytes of it may be used."""
    reap(SHARED_MEMORY)
    free = int(folder_free_bytes(SHARED_MEMORY) * _SHARE_OF_FOLDER)
    allowed = default_budget_bytes(SHARED_MEMORY) if budget_bytes is None else budget_bytes
    wanted = min(allowed, whole_bytes)
    least = min(_LEAST_USEFUL_BYTES, whole_bytes, budget_bytes or _LEAST_USEFUL_BYTES)
    if free >= wanted >= least:
        return SHARED_MEMORY, min(allowed, free)
    if spill is not None:
        reap(spill)
        on_disk = min(budget_bytes or whole_bytes, int(folder_free_bytes(spill) * _SHARE_OF_FOLDER))
        if on_disk >= least:
            return spill, on_disk
    if free >= _LEAST_USEFUL_BYTES and wanted >= least:
        note(message("cache.less_room", got_gb=free / 1e9, wanted_gb=wanted / 1e9, folder=SHARED_MEMORY))
        return SHARED_MEMORY, free
    memory_mb = memory().free_bytes / 1e6
    raise Unavailable(message("cache.no_memory", folder=SHARED_MEMORY, free_mb=free / 1e6, memory_mb=memory_mb))


# How much memory the cache may take: what the cgroup and the machine leave, and what the folder has free.

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(I?)B?\s*", re.IGNORECASE)
_SHARE_OF_FREE = 0.5


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
