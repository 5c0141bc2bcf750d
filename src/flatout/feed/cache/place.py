"""Whether a dataset can be cached, where and in how many bytes: decided once, for every process of the host."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.utils.data as data

from ...records.message import Message, message
from ..forked import ask_child
from ..machine import memory
from ..reasons import error_text
from .format import Payload, decode, encode
from .key import dataset_key
from .randomness import Cut, NoCut, Reader, find_cut, is_deterministic
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


# A look at a few samples before anything is kept: are they the same every time, how large, how long do they take? In a
# forked child: a dataset that opens files or draws numbers on its first reading is untouched here.

LIMIT_S = 60.0
_SAMPLES = 4
_GETS = 5
_ROUNDS, _LONG_S = 3, 0.01
# Finding a sample, and looking whether it is whole and the dataset unchanged: measured on a Neoverse N1.
_REST_OF_A_HIT_S = 4e-6
# A sample must take this many times as long to load as to get.
WORTHWHILE = 1.5
# What takes less is nothing to wait for, and on a busy machine no more than a guess.
_SOON_S = 20e-6
# The least that a disk takes for a read, an NVMe drive. A first read that is sooner came from memory, and took longer
# than the next ones because all was cold.
_DISK_S = 80e-6


@dataclass(frozen=True, slots=True)
class Probe:
    """What a few samples have shown. `refusal` is None where the dataset may be cached."""

    refusal: Message | None
    cut: Cut | None = None
    sample_bytes: float = 0.0
    load_s: float = 0.0
    get_s: float = 0.0  # what getting a sample out of the cache takes


def probe(dataset: Any, samples: int, limit_s: float = LIMIT_S) -> Probe:
    """Look at `_SAMPLES` samples evenly over the dataset, in a child process."""
    indices = sorted({round(at * (samples - 1) / max(1, _SAMPLES - 1)) for at in range(_SAMPLES)})
    try:
        found = ask_child(lambda: _look(dataset, indices), limit_s)
    except TimeoutError:
        return Probe(message("cache.look_late", limit_s=limit_s))
    return found if isinstance(found, Probe) else Probe(message("cache.look_died"))


def _look(dataset: Any, indices: Sequence[int]) -> Probe:
    try:
        verdict = is_deterministic(dataset, indices)
        if verdict.why_not is None:
            return _if_worth_it(_sized(dataset, indices, None), verdict.first_s)
        try:
            cut = find_cut(dataset, indices)
        except NoCut as reason:
            return Probe(message("cache.and", first=verdict.why_not, second=reason.why))
        return _sized(dataset, indices, cut)
    except Exception as error:
        return Probe(message("cache.look_failed", error=error_text(error)))


def _sized(dataset: Any, indices: Sequence[int], cut: Cut | None) -> Probe:
    reader = Reader(dataset, cut) if cut is not None else None
    took_s = math.inf
    for _ in range(_ROUNDS):
        began_s = time.perf_counter()
        samples = [dataset[index] if reader is None else reader.load(index)[0] for index in indices]
        took_s = min(took_s, time.perf_counter() - began_s)
        if took_s > _LONG_S:
            break  # what else the machine does at the moment does not count in that
    payloads = [encode(sample) for sample in samples]
    mean_bytes = sum(payload.nbytes for payload in payloads) / len(payloads)
    return Probe(None, cut, mean_bytes, took_s / len(samples), min(map(_get_s, payloads)))


def _get_s(payload: Payload) -> float:
    """As a hit does it, when all is warm."""
    data = memoryview(b"".join(payload.parts))
    took_s = []
    for _ in range(_GETS):
        began_s = time.perf_counter()
        decode(data, 0, payload.head_bytes, payload.layout_key)
        took_s.append(time.perf_counter() - began_s)
    return min(took_s) + _REST_OF_A_HIT_S


def _if_worth_it(found: Probe, first_s: float) -> Probe:
    """Not for samples that are loaded as quickly as they are copied, even when read for the first time from a disk."""
    least_s = first_s if first_s > max(found.load_s, _DISK_S) else found.load_s
    if least_s >= max(WORTHWHILE * found.get_s, _SOON_S):
        return found
    return Probe(message("cache.nothing_to_gain", load_us=1e6 * least_s, get_us=1e6 * found.get_s))
