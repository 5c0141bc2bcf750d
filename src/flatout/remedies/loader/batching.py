"""What a loader makes batches with: its sampler and its collate function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Batching:
    """What makes batches of a dataset's samples. None: as torch does."""

    collate_fn: Any = None
    sampler: Any = None
    is_batched: bool = True  # the sampler gives the indices of a batch, the collate function gets a list

    @classmethod
    def of(cls, loader: Any) -> Batching:
        from .torchs_own import collates_as_torch, draws_at_once

        collate_fn, sampler = loader.collate_fn, loader._index_sampler
        return cls(
            None if collates_as_torch(collate_fn) else collate_fn,
            None if draws_at_once(sampler) else sampler,
            loader._auto_collation,
        )
