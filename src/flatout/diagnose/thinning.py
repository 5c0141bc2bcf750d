"""Makes a curve of a million points small enough to draw, without losing a peak.

The points are cut into buckets of equal number. Of each bucket the lowest and the highest value stay, so that one slow
step in a million is still seen. A point may move within its bucket, which is a thousandth of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Floats
from flatout.records.timeline import Curves

# A chart is about as many pixels wide.
BUCKETS = 800


def bucket_starts(count: int, buckets: int = BUCKETS) -> NDArray[Any]:
    """Where each bucket begins; none for no points."""
    return np.unique(np.linspace(0, count, min(count, buckets), endpoint=False).astype(np.int64))


def peaks(t_s: Floats, values: Mapping[str, Floats]) -> Curves | None:
    """The curves with the lowest and highest of each bucket; curves without any value are left out."""
    known = {name: one for name, one in values.items() if np.isfinite(one).any()}
    if not known or not len(t_s):
        return None
    if len(t_s) <= 2 * BUCKETS:
        return Curves(_times(t_s), {name: _rounded(one) for name, one in known.items()})
    starts = bucket_starts(len(t_s))
    middles = (starts + np.append(starts[1:], len(t_s))) // 2
    moments = np.column_stack([t_s[starts], t_s[middles]]).ravel()
    # fmin and fmax pass over NaN as long as there is a number.
    pairs = {
        name: np.column_stack([np.fmin.reduceat(one, starts), np.fmax.reduceat(one, starts)]).ravel()
        for name, one in known.items()
    }
    return Curves(_times(moments), {name: _rounded(one) for name, one in pairs.items()})


def means(t_s: Floats, starts: NDArray[Any], values: Mapping[str, Floats]) -> Curves | None:
    """Curves that have one value a bucket already."""
    if not len(starts) or not values:
        return None
    return Curves(_times(t_s[starts]), {name: _rounded(one) for name, one in values.items()})


def _times(t_s: Floats) -> tuple[float, ...]:
    return tuple(round(one, 3) for one in t_s.tolist())


def _rounded(values: Floats) -> tuple[float | None, ...]:
    """Four figures are more than a chart can show, and a third of the bytes."""
    return tuple(float(f"{one:.4g}") if one == one and abs(one) != np.inf else None for one in values.tolist())
