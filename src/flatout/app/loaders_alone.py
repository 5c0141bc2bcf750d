"""What a trial of the loaders alone has found, from the recordings of its ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flatout.diagnose.ranks import Rank

NOT_FED = "no DataLoader was seen to give the batches that it trains on"


def fed(ranks: Sequence[Rank], settling: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds and samples of the batches of each step; NaN samples are not known. Empty where nothing was measured.

    The first `settling` steps are left out, half of all at most. No step is made before the slowest rank has its
    batches: that one's time counts.
    """
    found = [figures for rank in ranks for figures in rank.recording.values("feed")]
    if not found or len(found) < len(ranks):
        return (), ()
    steps = min(len(figures["seconds"]) for figures in found)
    times = max((np.asarray(figures["seconds"][:steps]) for figures in found), key=np.sum)
    samples = np.sum([np.asarray(figures["samples"][:steps], dtype=np.float64) for figures in found], axis=0)
    first = min(settling, steps // 2)
    return tuple(times[first:].tolist()), tuple(samples[first:].tolist())
