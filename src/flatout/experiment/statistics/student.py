"""Student's t: how far out chance alone goes when the spread itself is known from few trials only."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_GRID = 20_001


@lru_cache(maxsize=256)
def quantile(probability: float, freedom: float) -> float:
    """The t with `freedom` degrees of freedom that is exceeded with 1 - `probability`; for those from 0.5 up.

    With t = √freedom · tan(angle) its density is a power of the cosine, which sums up well on an even grid.
    """
    assert 0.5 <= probability < 1.0 and freedom > 0
    angles = np.linspace(0.0, np.pi / 2, _GRID)
    middles = (angles[1:] + angles[:-1]) / 2
    mass = np.concatenate([[0.0], np.cumsum(np.cos(middles) ** (freedom - 1.0))])
    angle = float(np.interp(2.0 * probability - 1.0, mass / mass[-1], angles))
    return float(freedom**0.5 * np.tan(angle))
