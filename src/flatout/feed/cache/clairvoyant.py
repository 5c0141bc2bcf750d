"""The sample that is needed again last leaves first (Belady): for orders that are known in advance.

The plan tells for every sample at which places of the order it is read. Every process counts in shared memory how often
a sample has been read, so that the next place is known to all. A sample that the plan does not need again is worth its
chance of being drawn in the next one, where that is known, and else as little as any.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from .plan import Plan
from .policy import MOST_WORTH

_MOST_SIMULATED = 50_000


class Clairvoyant:
    """Worth: the sooner the next reading, the more."""

    name = "clairvoyant"
    touches = True
    lowers = True
    needs_two_readings = False

    def __init__(self, current_plan: Callable[[], Plan | None]) -> None:
        self._current_plan = current_plan

    def worth(self, index: int, load_ns: int, nbytes: int) -> int:
        return self.touched(index)

    def touched(self, index: int) -> int:
        plan = self._current_plan()
        if plan is None:
            return 1
        place = plan.next_place(index)
        return 1 + plan.chances[index] if place is None else MOST_WORTH - place

    def admits(self, newcomer: int, resident: int) -> bool:
        return newcomer > resident


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
