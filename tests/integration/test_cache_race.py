"""Many processes read and replace the same few samples at once: nobody ever gets a mixture of two."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import torch

from flatout.feed.cache.policy import Lru
from flatout.feed.cache.segment import TABLE_AT, Counter, open_segment
from flatout.feed.cache.table import MISS, Table

SAMPLES, PLACES, SAMPLE_BYTES = 12, 5, 1 << 18
PROCESSES, SECONDS = 6, 2.0
WHOLE, MIXED = 0, 3


def opened(folder: Path) -> Table:
    overhead = (TABLE_AT + SAMPLES * 8) * 8 + 4096
    budget = overhead + PLACES * (SAMPLE_BYTES + 128) + SAMPLE_BYTES // 2
    return Table(open_segment(str(folder), "flatout-cache-race", SAMPLES, budget), Lru(), lambda nbytes: True)


def read_and_replace(table: Table, seed: int) -> int:
    """What a worker does with a cache that is much too small; MIXED as soon as a sample is not all of one piece."""
    source = random.Random(seed)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        # The first half is read over and over: those are hit, while the others want their places.
        index = source.randrange(SAMPLES // 2 if source.random() < 0.7 else SAMPLES)
        found = table.get(index)
        if found is MISS:
            table.put(index, (torch.full((SAMPLE_BYTES,), index, dtype=torch.uint8), index), 1000)
        elif found[1] != index or not bool((found[0] == index).all()):
            return MIXED
    return WHOLE


def test_samples_are_whole_while_others_replace_them(tmp_path: Path) -> None:
    table = opened(tmp_path)
    children = []
    for seed in range(PROCESSES):
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                torch.set_num_threads(1)
                outcome = read_and_replace(table, seed)
            finally:
                os._exit(outcome)
        children.append(child)

    outcomes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    assert outcomes == [WHOLE] * PROCESSES
    # All of it has happened, and often.
    segment = table.segment
    assert segment.total(Counter.HITS) > 200 and segment.total(Counter.EVICTIONS) > 100
    assert segment.total(Counter.CORRUPT) == 0
    table.forget_views()
    segment.close()
