"""The curves of a run: what its processes recorded and what was sampled beside them, on one axis of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.records.report import PHASES
from flatout.store.recording import Recording
from flatout.store.rows import Rows

_UNKNOWN_SAMPLES = 0xFFFFFFFF
# A negative duration written as unsigned: the clock stepped back.
_NEGATIVE = 1 << 63
_GIB = 2.0**30
_NOW_BINS = 5
_NOW_ROWS = 5
_STEPS = ("steps", "wall_s", "samples", "samples_wall_s", "starved_ms", "device_ms", "queue", "queue_n")
_MEANS = ("util", "power", "sm", "tensor", "gpu_memory", "ram", "ram_limit", "cpu", "disk_read")
_FIGURES = 4
Floats = NDArray[np.float64]
Places = NDArray[np.int64]
MOST_BINS = 900


_PHASE_SUMS = tuple(f"phase_{name}" for name in PHASES)
# Every curve is one sum divided by another.
_CURVES = {
    "steps_per_s": ("steps", "wall_s"),
    "samples_per_s": ("samples", "samples_wall_s"),
    "starved": ("starved_ms", "device_ms"),
    "queue": ("queue", "queue_n"),
    **{name: (name, "wall_s") for name in _PHASE_SUMS},
    **{name: (name, f"{name}_n") for name in _MEANS},
}
_SAMPLES_AT = list(_CURVES).index("samples_per_s")
_TENS = np.asarray([float(f"1e{power}") for power in range(300)])


class Charts:
    """Takes records and rows as they come and gives columns of numbers; None stands for "not measured"."""

    def __init__(self, host: str | None = None) -> None:
        self._host = host
        self._bins = Bins([*_STEPS, *_PHASE_SUMS, *_MEANS, *(f"{name}_n" for name in _MEANS)])
        self._parts, self._wholes = (self._bins.places(names) for names in zip(*_CURVES.values(), strict=True))
        self._trainers: set[object] = set()
        self._clock_offset_ns: int | None = None
        self._container_limit: float | None = None
        # The mean of the newest rows of each figure.
        self.latest: dict[str, float] = {}

    @property
    def bins(self) -> Bins:
        return self._bins

    def add_steps(self, new: Recording) -> None:
        rows = new.records["step"]
        rows = rows[rows["wall_ns"] < _NEGATIVE]
        if not len(rows):
            return
        self._trainers.add(new.path)
        wall_s = rows["wall_ns"].astype(np.float64) * 1e-9
        known = rows["samples"] != _UNKNOWN_SAMPLES
        queue = rows["queue_depth"].astype(np.float64)
        phases = rows["phase_s"].astype(np.float64)
        self._bins.add(
            self._ends_s(new, rows),
            {
                "steps": rows["steps"].astype(np.float64),
                "wall_s": wall_s,
                "samples": np.where(known, rows["samples"].astype(np.float64), np.nan),
                "samples_wall_s": np.where(known, wall_s, np.nan),
                "queue": np.where(queue >= 0, queue, np.nan),
                "queue_n": np.where(queue >= 0, 1.0, np.nan),
                **{name: phases[:, place] for place, name in enumerate(_PHASE_SUMS[: phases.shape[1]])},
            },
        )
        self._add_device(new, rows)

    def _ends_s(self, new: Recording, rows: Any) -> Floats:
        """When each step ended, by the clock of the host that samples; other hosts count from another moment."""
        facts = new.facts
        offset_ns = int(facts.get("start_unix_ns") or 0) - int(facts.get("start_ns") or 0)
        if self._clock_offset_ns is None or facts.get("host") == self._host:
            self._clock_offset_ns = offset_ns
        is_here = self._host is None or facts.get("host") == self._host
        shift_ns = 0 if is_here else offset_ns - self._clock_offset_ns
        ends: Floats = (rows["start_ns"].astype(np.float64) + rows["wall_ns"].astype(np.float64) + shift_ns) * 1e-9
        return ends

    def _add_device(self, new: Recording, rows: Any) -> None:
        device = new.records.get("device")
        if device is None or not len(device):
            return
        # The sampled step is among those that were read with it, or a little older.
        place = np.searchsorted(rows["index"], device["index"]).clip(0, len(rows) - 1)
        starved, step = device["starved_ms"].astype(np.float64), device["step_ms"].astype(np.float64)
        both = np.isfinite(starved) & np.isfinite(step)
        self._bins.add(
            self._ends_s(new, rows[place]),
            {"starved_ms": np.where(both, starved, np.nan), "device_ms": np.where(both, step, np.nan)},
        )

    def add_rows(self, source: str, rows: Rows) -> None:
        if not len(rows.values):
            return
        values = _figures(source, rows)
        if source == "cgroup":
            limits = rows.column("memory_limit_bytes")
            self._container_limit = float(limits[-1]) if np.isfinite(limits[-1]) else None
        # In a container its own limit counts, not the machine's memory.
        if source == "host" and self._container_limit is not None:
            return
        t_s = rows.column("t_s")
        if source in ("processes", "disks"):
            t_s, values = _together(t_s, values)
        known = {name: column for name, column in values.items() if np.isfinite(column).any()}
        if not known:
            return
        counts = {f"{name}_n": np.where(np.isfinite(column), 1.0, np.nan) for name, column in known.items()}
        self._bins.add(t_s, {**known, **counts})
        self.latest |= {name: _latest(column) for name, column in known.items()}

    def queue_now(self) -> float | None:
        """Batches that were ready, in the last few bins."""
        start = max(0, self._bins.used - _NOW_BINS)
        counted = float(self._bins.sums("queue_n", start).sum())
        return float(self._bins.sums("queue", start).sum()) / counted if counted else None

    def columns(self, start: int = 0) -> dict[str, list[float | None]]:
        """Every curve from bin `start` on."""
        ratios = self._bins.ratios(self._parts, self._wholes, start)
        # All ranks take a step together: samples add up over them, steps do not.
        ratios[_SAMPLES_AT] *= max(1, len(self._trainers))
        table = _short(np.vstack((self._bins.times_s(start), ratios)))
        told = table.astype(object)
        told[~np.isfinite(table)] = None
        return dict(zip(("t", *_CURVES), told.tolist(), strict=True))


def _figures(source: str, rows: Rows) -> dict[str, Floats]:
    """What of a source is shown: shares 0..1, memory in GiB, cores, bytes read a second in MB."""
    column = rows.column
    if source == "gpu":
        return {
            "util": column("util_percent") / 100,
            "power": divided(column("power_w"), column("power_limit_w")),
            "sm": column("sm_active_share"),
            "tensor": column("tensor_active_share"),
            "gpu_memory": divided(column("memory_used_bytes"), column("memory_total_bytes")),
        }
    if source == "host":
        total = column("memory_total_bytes")
        return {"ram": (total - column("memory_available_bytes")) / _GIB, "ram_limit": total / _GIB}
    if source == "cgroup":
        limit = column("memory_limit_bytes")
        # The cache of files is dropped under pressure: it is no danger.
        used = column("memory_current_bytes") - np.nan_to_num(column("memory_cache_bytes"))
        return {"ram": np.where(np.isfinite(limit), used, np.nan) / _GIB, "ram_limit": limit / _GIB}
    if source == "processes":
        return {"cpu": column("cpu_share")}
    if source == "disks":
        return {"disk_read": column("read_bytes_per_s") / 1e6}
    return {}


def _latest(column: Floats) -> float:
    """The mean of the newest that are known; one is."""
    newest = column[-_NOW_ROWS:].tolist()
    newest = [value for value in newest if math.isfinite(value)] or column[np.isfinite(column)][-1:].tolist()
    return float(sum(newest) / len(newest))


def _together(t_s: Floats, values: dict[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
    """Rows of one moment added up: all processes, all disks."""
    moments, place = np.unique(t_s, return_inverse=True)
    summed = {}
    for name, column in values.items():
        known = np.isfinite(column)
        total = np.bincount(place[known], column[known], len(moments))
        seen = np.bincount(place[known], minlength=len(moments))
        summed[name] = np.where(seen > 0, total, np.nan)
    return moments, summed


def _short(values: Floats) -> Floats:
    """Four figures are more than a curve shows, and shorter to send."""
    with np.errstate(divide="ignore"):
        power = np.floor(np.log10(np.abs(values)))
    digits = np.where(np.isfinite(power), _FIGURES - 1 - power, 0).astype(np.int64)
    # By whole powers of ten, up or down: what comes out is the float that is nearest to the short figure.
    up, down = (_TENS[some.clip(0, len(_TENS) - 1)] for some in (digits, -digits))
    return np.asarray(np.rint(values * up / down) / up * down)


# Sums over equal stretches of time, in memory that does not grow: when the bins are used up, they are made wider.


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
