"""Sums over equal stretches of time, in memory that does not grow: when the bins are used up, they are made wider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_BINS = 900


class Bins:
    """Named sums for each stretch of `width_s` seconds since the first time seen."""

    def __init__(self, names: Sequence[str], width_s: float = 1.0, most: int = MOST_BINS) -> None:
        self.width_s = width_s
        # How many are in use.
        self.used = 0
        # The first bin that has changed since `settle`; 0 after the bins were made wider.
        self.changed_from = 0
        # How often they were: who holds a copy has to take a new one.
        self.widened = 0
        self._places = {name: place for place, name in enumerate(names)}
        self._sums = np.zeros((len(names), most))
        self._origin_s: float | None = None

    def add(self, t_s: Floats, values: Mapping[str, Floats]) -> None:
        """Add each value to the bin of its time. A value that is not finite is not measured, and adds nothing."""
        table = np.asarray(list(values.values()))
        at = np.isfinite(t_s)
        if not at.all():
            t_s, table = t_s[at], table[:, at]
        if not len(t_s):
            return
        if self._origin_s is None:
            self._origin_s = float(t_s.min())
        # Before the first time seen: a clock that was put back, or a process that was read late.
        since_s = np.maximum(t_s - self._origin_s, 0.0)
        while float(since_s.max()) >= self.width_s * self._sums.shape[1]:
            self._widen()
        place = (since_s / self.width_s).astype(np.int64)
        order = np.argsort(place, kind="stable")
        place, table = place[order], table[:, order]
        # All sums of a bin at one stroke: this is done every few seconds beside a training.
        starts = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
        added = np.add.reduceat(np.where(np.isfinite(table), table, 0.0), starts, axis=1)
        self._sums[np.ix_(self.places(list(values)), place[starts])] += added
        self.used = max(self.used, int(place[-1]) + 1)
        self.changed_from = min(self.changed_from, int(place[0]))

    def _widen(self) -> None:
        most = self._sums.shape[1]
        paired = self._sums.reshape(len(self._sums), most // 2, 2).sum(axis=2)
        self._sums[:] = 0.0
        self._sums[:, : most // 2] = paired
        self.width_s *= 2
        self.used = -(-self.used // 2)
        self.changed_from = 0
        self.widened += 1

    def settle(self) -> None:
        """What has been added until now is known to all who hold a copy."""
        self.changed_from = self.used

    def times_s(self, start: int = 0) -> Floats:
        """The middle of each bin in use, in seconds since the first time seen."""
        return (np.arange(start, self.used, dtype=np.float64) + 0.5) * np.float64(self.width_s)

    def sums(self, name: str, start: int = 0) -> Floats:
        return self._sums[self._places[name], start : self.used]

    def places(self, names: Sequence[str]) -> Places:
        """Where these sums are, for `ratios`."""
        return np.asarray([self._places[name] for name in names])

    def ratios(self, parts: Places, wholes: Places, start: int = 0) -> Floats:
        """Sums divided by other sums: a row for each pair."""
        return divided(self._sums[parts, start : self.used], self._sums[wholes, start : self.used])


def divided(part: Floats, whole: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))
