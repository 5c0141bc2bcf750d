"""Which samples stay when the cache is full: one number for each, and the least leaves first."""

from __future__ import annotations

import heapq
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch.utils.data as data

from ..machine import ranks_here
from .plan import Plan
from .segment import MOST_WORTH


class Policy:
    """Gives every sample its worth: an integer from 1 to MOST_WORTH. Free room has worth 0."""

    name = ""
    touches = False  # whether a hit changes a sample's worth
    lowers = False  # whether it may become less by a hit
    needs_two_readings = False  # whether the first is too little to go by for taking another's place

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        """Of a sample that has just been loaded."""
        return self.touched(index)

    def touched(self, index: int) -> int:
        """Of a sample that has just been hit."""
        raise NotImplementedError

    def admits(self, newcomer: int, resident: int) -> bool:
        """May a sample of worth `newcomer` take the place of one of worth `resident`?"""
        return newcomer > resident


def choose(sampler: Any, environ: Mapping[str, str] = os.environ) -> str:
    """By the sampler's type: what is read once an epoch is best kept, what is drawn is best foreseen."""
    sampler = innermost(sampler)
    ranks = ranks_here(environ)
    if isinstance(sampler, data.DistributedSampler):
        # Where other hosts take part, this one gets other samples every epoch.
        return "keep" if sampler.num_replicas <= ranks else "clairvoyant"
    is_random = isinstance(sampler, data.RandomSampler)
    if isinstance(sampler, data.WeightedRandomSampler) or (is_random and sampler.replacement):
        # Each rank draws by itself, and what the others draw is not known.
        return "lru" if ranks > 1 else "clairvoyant"
    is_known = is_random or isinstance(sampler, data.SequentialSampler | data.SubsetRandomSampler)
    return "lru" if not is_known and _reads_again(sampler) else "keep"


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


# Keep: never evict, except for a sample that is clearly more expensive to load. When every sample is read once an
# epoch, no policy hits more often than the share that fits, and keeping reaches that. What can still be gained is
# load time: a sample is worth its load time per byte.

# Times are noisy: only what is clearly dearer, and was so twice, is worth a second writing, and never in circles.
CLEARLY = 2


class Keep(Policy):
    """Worth: nanoseconds of loading per MiB."""

    name = "keep"
    needs_two_readings = True

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        return max(1, min(MOST_WORTH, (load_ns << 20) // max(1, nbytes)))

    def admits(self, newcomer: int, resident: int) -> bool:
        return newcomer >= CLEARLY * resident


def keep_hit_rate(fraction: float) -> float:
    """Of samples that have been read before, each once an epoch, when `fraction` of all bytes fit."""
    return min(1.0, fraction)


# LRU: the least recently read sample is evicted first, for orders that soon come back to what they read.


class Lru(Policy):
    """Worth: the moment of the last reading, on the clock that all processes of a host share."""

    name = "lru"
    touches = True

    def touched(self, index: int) -> int:
        return time.monotonic_ns()

    def admits(self, newcomer: int, resident: int) -> bool:
        return True


def lru_hit_rate(fraction: float) -> float:
    """Under a new shuffle every epoch, when `fraction` of all bytes fit."""
    if fraction >= 1.0:
        return 1.0
    return fraction + (1.0 - fraction) * math.log1p(-fraction)


# Clairvoyant (Belady): the sample that is needed again last is evicted first, for orders that are known in advance.
# The plan tells at which places of the order each sample is read. Every process counts in shared memory how often a
# sample has been read, so that all know its next place. A sample that the plan does not need again is worth its
# chance of being drawn in the next one, where that is known.

_MOST_SIMULATED = 50_000


class Clairvoyant(Policy):
    """Worth: the sooner the next reading, the more."""

    name = "clairvoyant"
    touches = True
    lowers = True

    def __init__(self, current_plan: Callable[[], Plan | None]) -> None:
        self._current_plan = current_plan

    def touched(self, index: int) -> int:
        plan = self._current_plan()
        if plan is None:
            return 1
        place = plan.next_place(index)
        return 1 + plan.chances[index] if place is None else MOST_WORTH - place


def foreseen_hits(
    order: Sequence[int], places: int, kept: Iterable[int] = (), seen: Iterable[int] = ()
) -> tuple[int, int]:
    """Hits, and readings of samples seen before, in `order`, for a cache of that many places that holds `kept` now.

    Long orders are judged by the readings of an even choice of samples in a cache that is smaller by the same share.
    """
    share = max(1, len(order) // _MOST_SIMULATED)
    if share > 1:
        order, kept, seen = ([i for i in indices if _is_chosen(i, share)] for indices in (order, kept, seen))
    hits, again = _belady(order, places // share, kept, set(seen))
    return hits * share, again * share


def _is_chosen(index: int, share: int) -> bool:
    return (index * 2_654_435_761 & 0xFFFFFFFF) % share == 0


def _belady(order: Sequence[int], places: int, kept: Iterable[int], seen: set[int]) -> tuple[int, int]:
    later, first = _next_places(order)
    resident = {index: first.get(index, len(order)) for index in kept}
    heap = [(-place, index) for index, place in resident.items()]
    heapq.heapify(heap)
    hits = again = 0
    for place, index in enumerate(order):
        again += index in seen
        seen.add(index)
        if index in resident:
            hits += 1
        elif len(resident) >= places:
            while heap and resident.get(heap[0][1]) != -heap[0][0]:
                heapq.heappop(heap)
            if not heap or -heap[0][0] <= later[place]:
                continue
            del resident[heapq.heappop(heap)[1]]
        resident[index] = later[place]
        heapq.heappush(heap, (-later[place], index))
    return hits, again


def _next_places(order: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """For each place of the order, where the same sample is read next, beyond the end if it is not; and the first."""
    later, first = [0] * len(order), dict[int, int]()
    for place in range(len(order) - 1, -1, -1):
        later[place] = first.get(order[place], len(order))
        first[order[place]] = place
    return later, first
