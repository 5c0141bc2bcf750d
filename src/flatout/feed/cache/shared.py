"""The caches this process has open. They stay open while it lives: loaders made anew every epoch find them warm."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .place import Place, may_take
from .policy import Clairvoyant, Keep, Lru, PlanWatch, Policy, foreseen_hits, keep_hit_rate, lru_hit_rate, publish
from .segment import Counter, Segment, Word, open_segment
from .table import Table

POLICIES = ("keep", "lru", "clairvoyant")
_tables: dict[str, SharedTable] = {}


class SharedTable(Table):
    """A table, its segment, its plan, and the datasets of this process that use it."""

    def __init__(self, segment: Segment, policy: str) -> None:
        self.segment = segment
        self.samples = segment.samples
        self.plans = PlanWatch(segment)
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(segment, self.made(policy), may_take)

    def made(self, policy: str) -> Policy:
        if policy == "clairvoyant":
            return Clairvoyant(self.plans)
        return Keep() if policy == "keep" else Lru()

    def change_policy(self, policy: str) -> None:
        if self.policy.name != policy:
            self.use(self.made(policy))

    def foresee(self, order: Sequence[int], sample_bytes: float, chances: Any = None) -> None:
        """The samples will be read in this order from now on, by all processes together."""
        words = self.segment.words
        places = int(words[Word.DATA_BYTES] / max(1.0, sample_bytes))
        hits, again = foreseen_hits(order, places, self.kept(), self.seen())
        words[Word.FORESEEN_HITS] += hits
        words[Word.FORESEEN_AGAIN] += again
        publish(self.segment, order, chances)

    def release(self) -> None:
        self.forget_views()
        self.segment.close()


def open_table(place: Place) -> SharedTable:
    """Raises Unavailable."""
    path = os.path.join(place.folder, place.name)
    table = _tables.get(path)
    if table is None:
        segment = open_segment(place.folder, place.name, place.samples, place.budget_bytes)
        table = _tables[path] = SharedTable(segment, place.policy)
    else:
        table.change_policy(place.policy)
    return table


def release_unused() -> bool:
    """Give back the memory of caches whose datasets are gone; were there any?"""
    unused = [path for path, table in _tables.items() if not table.users]
    for path in unused:
        _tables.pop(path).release()
    return bool(unused)


def release_all() -> None:
    """The last process out frees the memory."""
    while _tables:
        _tables.popitem()[1].release()


atexit.register(release_all)

# What the cache did, over all processes, and what was expected of it.


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made. `warm_hit_rate` is of the readings of samples that had been read before."""

    dataset: str
    policy: str
    items: int = 0
    used_bytes: int = 0
    budget_bytes: int = 0
    hits: int = 0
    misses: int = 0
    first_reads: int = 0
    evictions: int = 0
    corrupt: int = 0
    not_admitted: int = 0
    not_flat: int = 0
    lock_timeouts: int = 0
    predicted_hit_rate: float | None = None

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.hits + self.misses)

    @property
    def warm_hit_rate(self) -> float | None:
        again = self.hits + self.misses - self.first_reads
        return self.hits / again if again > 0 else None

    def __str__(self) -> str:
        warm = "none read twice yet" if self.warm_hit_rate is None else f"{100 * self.warm_hit_rate:.2f}%"
        foreseen = "" if self.predicted_hit_rate is None else f", {100 * self.predicted_hit_rate:.2f}% predicted"
        return (
            f"[{self.dataset}] Cache Stats:\n"
            f"  - Size: {self.items} items\n"
            f"  - Memory: {self.used_bytes / 1e6:.1f} / {self.budget_bytes / 1e6:.1f} MB\n"
            f"  - Hit Rate: {100 * self.hit_rate:.2f}% ({self.hits} hits / {self.misses} misses)\n"
            f"  - Of samples read before: {warm}{foreseen} ({self.policy}, {self.evictions} evictions)"
        )


def read_stats(dataset: str, policy: str, sample_bytes: float, segment: Segment | None) -> CacheStats:
    """Zeros where this process has no cache."""
    if segment is None:
        return CacheStats(dataset, policy)
    words = segment.words
    return CacheStats(
        dataset,
        policy,
        items=words[Word.ITEMS],
        used_bytes=words[Word.LIVE_BYTES],
        budget_bytes=words[Word.DATA_BYTES],
        predicted_hit_rate=predicted_hit_rate(policy, sample_bytes, segment),
        **{counter.name.lower(): segment.total(counter) for counter in Counter},
    )


def predicted_hit_rate(policy: str, sample_bytes: float, segment: Segment) -> float | None:
    """Of samples read before: by simulation of the plans so far, else for reading each once an epoch in a new order."""
    words = segment.words
    if policy == "clairvoyant":
        again = words[Word.FORESEEN_AGAIN]
        return words[Word.FORESEEN_HITS] / again if again else None
    fraction = words[Word.DATA_BYTES] / max(1.0, segment.samples * sample_bytes)
    return keep_hit_rate(fraction) if policy == "keep" else lru_hit_rate(fraction)
