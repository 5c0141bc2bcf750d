"""What more threads would make of the heaviest operations of a step, where torch has fewer threads than processors.

How much an operation gains depends on its size: a small one gains nothing. So products of as many multiplications are
timed with either number of threads when the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter
from typing import Any

# A larger product is timed as one of this many multiplications, and a smaller one than this takes no second thread.
_MOST_OPERATIONS = 2e8
_LEAST_OPERATIONS = 1e5
_ROUNDS = 3


def idle_processors(torch: Any) -> int:
    """How many more threads there could be, for as many processes as train together on this machine."""
    processors = len(os.sched_getaffinity(0))
    beside = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
    return int(processors // beside - torch.get_num_threads())


def time_threads(torch: Any, operations: Sequence[float]) -> dict[str, object] | None:
    """Milliseconds of products of so many multiplications with the threads as they are, and with all there could be."""
    few = torch.get_num_threads()
    many = few + idle_processors(torch)
    sides = [round(min(each, _MOST_OPERATIONS) ** (1 / 3)) for each in operations if each >= _LEAST_OPERATIONS]
    if not sides or many <= few:
        return None
    took: dict[int, list[float]] = {few: [], many: []}
    with torch.no_grad():
        # Not random numbers: those of the script must not move.
        factors = [torch.linspace(-1, 1, side * side, device="cpu").view(side, side) for side in sides]
        try:
            for _ in range(_ROUNDS):
                for threads, seconds in took.items():
                    torch.set_num_threads(threads)
                    for factor in factors:
                        torch.mm(factor, factor)  # new threads are started here
                    begun = perf_counter()
                    for factor in factors:
                        torch.mm(factor, factor)
                    seconds.append(perf_counter() - begun)
        finally:
            torch.set_num_threads(few)
    # The quickest: the others were disturbed, or the first.
    return {"threads": few, "processors": many, "ms": [round(1e3 * min(took[each]), 4) for each in (few, many)]}
