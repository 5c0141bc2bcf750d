"""Which batch sizes will not fit, told without trying: peak memory grows in a line with the batch."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.records.tune import Knob, Point, Setting
from flatout.tune.space import key

# Of the device: fragments and other processes take the rest.
USABLE = 0.92


class Fits:
    """Learns from every point, for each choice of the other knobs apart."""

    def __init__(self, knobs: Sequence[Knob], limit_bytes: float | None) -> None:
        found = [knob.name for knob in knobs if knob.meaning == "batch_size" and knob.is_ordered]
        self._batch = found[0] if len(found) == 1 else None
        self._limit_bytes = limit_bytes
        self._memory: dict[str, dict[float, float]] = {}
        self._too_large: dict[str, float] = {}

    def learn(self, point: Point) -> None:
        if self._batch is None or self._batch not in point.setting:
            return
        others, size = self._others(point.setting), float(point.setting[self._batch])
        if point.why.startswith("out of memory"):
            self._too_large[others] = min(size, self._too_large.get(others, size))
        elif not point.why and point.memory_bytes is not None:
            seen = self._memory.setdefault(others, {})
            seen[size] = max(point.memory_bytes, seen.get(size, 0.0))

    def obstacle(self, setting: Setting) -> str:
        """Why a trial of it can be spared; empty where it cannot."""
        if self._batch is None or self._batch not in setting:
            return ""
        others, size = self._others(setting), float(setting[self._batch])
        too_large = self._too_large.get(others)
        if too_large is not None and size >= too_large:
            return f"not tried: {too_large:g} was out of memory already"
        needed = self.predicted_bytes(setting)
        if needed is None or self._limit_bytes is None or needed <= self._limit_bytes:
            return ""
        return f"not tried: would need about {needed / 2**30:.1f} of {self._limit_bytes / 2**30:.1f} GiB"

    def predicted_bytes(self, setting: Setting) -> float | None:
        """By the line through the smallest and the largest that were measured; None with fewer than two."""
        assert self._batch is not None
        seen = self._memory.get(self._others(setting), {})
        size = float(setting[self._batch])
        if len(seen) < 2 or size <= max(seen):
            return None
        small, large = min(seen), max(seen)
        slope = max(0.0, (seen[large] - seen[small]) / (large - small))
        return seen[large] + slope * (size - large)

    def _others(self, setting: Setting) -> str:
        return key({name: value for name, value in setting.items() if name != self._batch})
