"""How far a profile is from what the device alone can do with it, or the loaders alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flatout.app.fixing.bench import Bench
from flatout.app.fixing.judging import counted_by
from flatout.prove.ceiling import ceiling
from flatout.records.proof import Ceiling
from flatout.records.trial import Trial


def distance(bench: Bench, profile: Mapping[str, Any], feed: Sequence[Trial] = ()) -> Ceiling | None:
    """Counted as the profile's own gain is: with evaluations and checkpoints where it is about them.

    Where the ceiling saw none of them, it is one of the steps alone.
    """
    assert bench.sizes is not None
    at, by, seen = bench.ceiling(profile), counted_by(profile), bench.sizes.sees(profile)
    if by == "total" and not (any(at.pause_s) and bench.timed(profile, seen)):
        by, seen = "blocks", 0
    return ceiling(bench.timed(profile, seen), [at], feed, bench.spread(profile, seen, by), by)
