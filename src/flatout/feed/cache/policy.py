"""Which samples stay when the cache is full: one number for each, and the least leaves first."""

from __future__ import annotations

import contextlib
import heapq
import math
import mmap
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch.utils.data as data

from ..machine import ranks_here
from .segment import MOST_WORTH, TABLE_AT, WORDS_PER_LINE, Field, Segment, Word


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


# The order of the samples to come, published by the process that draws it to all that read.

_HEAD_WORDS = 4
_MOST_CHANCE = 1 << 30


class Plan:
    """One published order, mapped. `chances` are of being drawn after its end, per sample."""

    def __init__(self, path: str, samples: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        words = memoryview(self._map).cast("I")
        self.starts = words[_HEAD_WORDS : _HEAD_WORDS + samples + 1]
        self._taken = words[_HEAD_WORDS + samples + 1 : _HEAD_WORDS + 2 * samples + 1]
        self.chances = words[_HEAD_WORDS + 2 * samples + 1 : _HEAD_WORDS + 3 * samples + 1]
        self._places = words[_HEAD_WORDS + 3 * samples + 1 :]

    def next_place(self, index: int) -> int | None:
        """Where in the order the sample comes next, after the reading that is now counted."""
        taken = self._taken[index] + 1
        self._taken[index] = taken
        at = self.starts[index] + taken
        return self._places[at] if at < self.starts[index + 1] else None


class PlanWatch:
    """The newest plan of a segment, mapped when it is first asked for."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._number = 0
        self._plan: Plan | None = None

    def __call__(self) -> Plan | None:
        number = self._segment.words[Word.PLAN]
        if number != self._number:
            self._number = number
            self._plan = None
            # The next plan may have replaced it meanwhile.
            with contextlib.suppress(OSError, ValueError):
                self._plan = Plan(_path(self._segment, number), self._segment.samples)
        return self._plan


def publish(segment: Segment, order: Sequence[int], chances: Any = None) -> None:
    """Make `order` the plan from now on, and value by it what is already kept.

    `chances` are the weights by which the next plan will be drawn.
    """
    samples = segment.samples
    indices = np.asarray(order, np.int64)
    places = np.argsort(indices, kind="stable").astype(np.uint32)
    counts = np.bincount(indices, minlength=samples)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    scaled = np.zeros(samples, np.uint32)
    if chances is not None:
        weights = np.asarray(chances, np.float64)
        scaled = (weights / max(float(weights.max()), 1e-300) * _MOST_CHANCE).astype(np.uint32)
    number = segment.words[Word.PLAN] + 1
    head = np.array([1, samples, len(indices), 0], np.uint32)
    path = _path(segment, number)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        for part in (head, starts, np.zeros(samples, np.uint32), scaled, places):
            _write_all(fd, part.tobytes())
    finally:
        os.close(fd)
    lines = np.frombuffer(segment.words, np.int64)[TABLE_AT:].reshape(samples, WORDS_PER_LINE)
    lines[:, int(Field.WORTH)] = _worths(starts, places, scaled)
    segment.words[Word.PLAN] = number
    with contextlib.suppress(OSError):
        os.unlink(_path(segment, number - 1))


def _worths(starts: Any, places: Any, chances: Any) -> Any:
    """Of every sample: the sooner it comes, the more; of one that is not drawn, its chance."""
    drawn = starts[1:] > starts[:-1]
    first = np.zeros(len(chances), np.int64)
    first[drawn] = places[starts[:-1][drawn]]
    return np.where(drawn, MOST_WORTH - first, 1 + chances.astype(np.int64))


def _path(segment: Segment, number: int) -> str:
    return f"{segment.path}.plan{number}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
