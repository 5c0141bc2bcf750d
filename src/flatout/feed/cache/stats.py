"""What the cache did, for all processes together, and what was to be expected of it."""

from __future__ import annotations

from dataclasses import dataclass

from . import keep, lru
from .segment import Counter, Segment, Word


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made. `warm_hit_rate` is of the readings of samples that had been read before."""

    dataset: str
    policy: str
    items: int
    used_bytes: int
    budget_bytes: int
    hits: int
    misses: int
    first_reads: int
    evictions: int
    corrupt: int
    not_admitted: int
    not_flat: int
    lock_timeouts: int
    predicted_hit_rate: float | None

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
        return CacheStats(dataset, policy, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None)
    words, total = segment.words, segment.total
    budget = words[Word.DATA_BYTES]
    return CacheStats(
        dataset,
        policy,
        items=words[Word.ITEMS],
        used_bytes=words[Word.LIVE_BYTES],
        budget_bytes=budget,
        hits=total(Counter.HITS),
        misses=total(Counter.MISSES),
        first_reads=total(Counter.FIRST_READS),
        evictions=total(Counter.EVICTIONS),
        corrupt=total(Counter.CORRUPT),
        not_admitted=total(Counter.NOT_ADMITTED),
        not_flat=total(Counter.NOT_FLAT),
        lock_timeouts=total(Counter.LOCK_TIMEOUTS),
        predicted_hit_rate=predicted(policy, sample_bytes, segment),
    )


def predicted(policy: str, sample_bytes: float, segment: Segment) -> float | None:
    """Of samples read before: by simulation of the plans so far, else for reading each once an epoch in a new order."""
    words = segment.words
    if policy == "clairvoyant":
        again = words[Word.FORESEEN_AGAIN]
        return words[Word.FORESEEN_HITS] / again if again else None
    fraction = words[Word.DATA_BYTES] / max(1.0, segment.samples * sample_bytes)
    return keep.predicted_hit_rate(fraction) if policy == "keep" else lru.predicted_hit_rate(fraction)
