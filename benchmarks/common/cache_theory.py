"""How often each policy can hit, simulated over an order of readings in pure Python, apart from the cache itself."""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence


def keep_hits(order: Sequence[int], places: int) -> int:
    """What came first stays."""
    kept: set[int] = set()
    hits = 0
    for index in order:
        if index in kept:
            hits += 1
        elif len(kept) < places:
            kept.add(index)
    return hits


def lru_hits(order: Sequence[int], places: int) -> int:
    """What was read longest ago leaves."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for index in order:
        if index in kept:
            hits += 1
            kept.move_to_end(index)
            continue
        if len(kept) >= places:
            kept.popitem(last=False)
        kept[index] = None
    return hits


def belady_hits(order: Sequence[int], places: int) -> int:
    """What is needed again last leaves, or is not let in: no policy hits more often."""
    coming: dict[int, deque[int]] = defaultdict(deque)
    for place, index in enumerate(order):
        coming[index].append(place)
    kept: dict[int, float] = {}
    farthest: list[tuple[float, int]] = []
    hits = 0
    for index in order:
        coming[index].popleft()
        following = coming[index][0] if coming[index] else float("inf")
        if index in kept:
            hits += 1
        elif len(kept) >= places:
            while kept.get(farthest[0][1]) != -farthest[0][0]:
                heapq.heappop(farthest)
            if -farthest[0][0] <= following:
                continue
            del kept[heapq.heappop(farthest)[1]]
        kept[index] = following
        heapq.heappush(farthest, (-following, index))
    return hits
