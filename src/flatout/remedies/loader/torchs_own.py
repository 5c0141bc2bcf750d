"""Samplers and collate functions of torch's own that are known: they need not be looked at."""

from __future__ import annotations

from typing import Any


def collates_as_torch(collate_fn: Any) -> bool:
    from torch.utils.data._utils import collate

    return collate_fn is collate.default_collate or collate_fn is collate.default_convert


def draws_at_once(sampler: Any) -> bool:
    """Whether it is one of torch's that draw an epoch when it begins, and give numbers from 0 on."""
    sampler = _inner(sampler)
    kind = _kind(sampler)
    if kind == "RandomSampler":
        # With a generator that it was given, draws with replacement are made as it goes.
        return not sampler.replacement or sampler.generator is None
    return kind in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler")


def comes_to_its_end_drawing(sampler: Any) -> bool:
    """Whether it may draw when its last entries are asked for: torch's does so from a generator that it was given."""
    sampler = _inner(sampler)
    kind = _kind(sampler)
    if kind == "RandomSampler":
        return sampler.generator is not None
    return kind not in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler", "SubsetRandomSampler")


def _inner(sampler: Any) -> Any:
    return sampler.sampler if _kind(sampler) == "BatchSampler" else sampler


def _kind(sampler: Any) -> str | None:
    """The name of torch's own class, None for all others."""
    # The cache of samples has one made a kind of its own, to know the order.
    kind = type(sampler).__mro__[1] if "_flatout_publish" in getattr(sampler, "__dict__", {}) else type(sampler)
    return kind.__name__ if kind.__module__.startswith("torch.utils.data.") else None
