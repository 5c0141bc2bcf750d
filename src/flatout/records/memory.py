"""What a loader's memory comes to: the records behind `flatout memory`. All sizes are bytes, of one host."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.records.message import NOTHING, Message

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """The settings in question. `workers` is of one rank, `ranks` are those of this host."""

    sample_bytes: float
    batch: int
    workers: int
    prefetch: int = 2
    ranks: int = 1
    pinned: bool = False
    # What one cache may hold; a cache inside the dataset object is one per worker, whatever its name says.
    cache_bytes: float = 0.0
    cache_is_shared: bool = False
    dataset_len: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The most it can come to. `ram` holds everything below it: shared memory is RAM too."""

    batch_bytes: float
    batches_in_flight: int
    shm_bytes: float
    making_bytes: float
    pinned_bytes: float
    caches: int
    cache_bytes: float
    process_bytes: float

    @property
    def ram_bytes(self) -> float:
        return self.shm_bytes + self.making_bytes + self.pinned_bytes + self.cache_bytes + self.process_bytes


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """What this machine has and what is free of it; None where it cannot be read."""

    ram_bytes: float | None
    ram_free_bytes: float | None
    # What sets the limit: "host" or "container".
    ram_by: str
    shm_bytes: float | None
    shm_free_bytes: float | None
    cpus: float


@dataclass(frozen=True, slots=True)
class CacheOutlook:
    """The hit rate that a cache of this size can have when each sample is read once an epoch, in shuffled order."""

    share_of_dataset: float
    lru_hit_rate: float
    kept_hit_rate: float


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    plan: LoaderPlan
    need: MemoryNeed
    limits: MachineLimits
    fits_ram: bool | None
    fits_shm: bool | None
    cache: CacheOutlook | None
    # The nearest setting that fits this machine; None where none does.
    safe: LoaderPlan | None
    safe_need: MemoryNeed | None
    # Where the size of a sample is from, in words.
    sample_from: Message = NOTHING
    # What a stored run was seen to take at most.
    measured_peak_bytes: float | None = None
