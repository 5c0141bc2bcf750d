"""Which samples stay when the cache is full: one number for each, and the least leaves first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch.utils.data as data

MOST_WORTH = (1 << 62) - 1


class Policy(Protocol):
    """Gives every sample its worth: an integer from 1 to MOST_WORTH. Free room has worth 0."""

    name: str
    touches: bool  # whether a hit changes a sample's worth
    lowers: bool  # whether it may become less by a hit
    needs_two_readings: bool  # whether the first is too little to go by for taking another's place

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        """Of a sample that has just been loaded."""
        ...

    def touched(self, index: int) -> int:
        """Of a sample that has just been hit."""
        ...

    def admits(self, newcomer: int, resident: int) -> bool:
        """May a sample of worth `newcomer` take the place of one of worth `resident`?"""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The policy that suits a sampler, and why."""

    policy: str
    because: str


def choose(sampler: Any, environ: Mapping[str, str] = os.environ) -> Choice:
    """By the sampler's type: what is read once an epoch is best kept, what is drawn is best foreseen."""
    sampler = innermost(sampler)
    kind = type(sampler).__name__
    ranks_here = _number(environ, "LOCAL_WORLD_SIZE", 1)
    if isinstance(sampler, data.DistributedSampler):
        if sampler.num_replicas <= ranks_here:
            return Choice("keep", f"{kind} gives this host every sample once an epoch")
        return Choice("clairvoyant", f"{kind} gives this host other samples every epoch, and they can be foreseen")
    drawn = isinstance(sampler, data.WeightedRandomSampler)
    if drawn or (isinstance(sampler, data.RandomSampler) and sampler.replacement):
        if ranks_here > 1:
            return Choice("lru", f"{kind} draws with replacement in each of {ranks_here} processes by itself")
        return Choice("clairvoyant", f"{kind} draws with replacement, and an epoch's draws can be foreseen")
    known = (data.RandomSampler, data.SequentialSampler, data.SubsetRandomSampler)
    if sampler is None or isinstance(sampler, known):
        return Choice("keep", "every sample is read once an epoch")
    if _reads_again(sampler):
        return Choice("lru", f"{kind} reads samples several times an epoch, in an order that is not known")
    return Choice("keep", f"{kind} is taken to read every sample once an epoch")


def innermost(sampler: Any) -> Any:
    """The sampler that decides on the indices, below those that only group them."""
    for _ in range(8):
        if not isinstance(sampler, data.BatchSampler):
            break
        sampler = sampler.sampler
    return sampler


def _reads_again(sampler: Any) -> bool:
    source = getattr(sampler, "data_source", None)
    try:
        return source is not None and len(sampler) > len(source)
    except TypeError:
        return False


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdigit() else otherwise
