"""Samples as rows of floats, for the run's `telemetry/<source>.rows` files. NaN is "not measured"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from flatout.records.sample import (
    ROLES,
    CgroupSample,
    CoreSample,
    DiskSample,
    GpuSample,
    HostSample,
    NetworkFsSample,
    ProcessSample,
    Tick,
)

_RECORDS: dict[str, Any] = {
    "gpu": GpuSample,
    "host": HostSample,
    "cores": CoreSample,
    "processes": ProcessSample,
    "disks": DiskSample,
    "network": NetworkFsSample,
    "cgroup": CgroupSample,
}
_NAMES = {source: tuple(field.name for field in fields(record)) for source, record in _RECORDS.items()}
_GETTERS = {source: attrgetter(*names) for source, names in _NAMES.items()}
_ROLE_NUMBERS = {role: float(number) for number, role in enumerate(ROLES)}

SOURCES = tuple(_RECORDS)


def columns(source: str) -> tuple[str, ...]:
    """The names of a row's floats: `t_s` (CLOCK_MONOTONIC seconds), then the fields of the source's record."""
    return ("t_s", *_NAMES[source])


def row(source: str, t_s: float, sample: object) -> tuple[float, ...]:
    """One sample as floats; a process's role is its place in ROLES."""
    return (t_s, *(_float(value) for value in _GETTERS[source](sample)))


def rows(tick: Tick) -> dict[str, list[tuple[float, ...]]]:
    """The rows a tick adds to each source. A GPU reading is filed once, at its own time, however often it is seen."""
    found: dict[str, list[tuple[float, ...]]] = {}
    if tick.gpu is not None and tick.gpu.fresh:
        found["gpu"] = _all("gpu", tick.gpu.t_s, tick.gpu.gpus)
    for source, sample in (("host", tick.host), ("network", tick.network), ("cgroup", tick.cgroup)):
        if sample is not None:
            found[source] = [row(source, tick.t_s, sample)]
    for source, samples in (("cores", tick.cores), ("processes", tick.processes), ("disks", tick.disks)):
        found[source] = _all(source, tick.t_s, samples)
    return {source: lines for source, lines in found.items() if lines}


def _all(source: str, t_s: float, samples: Iterable[object]) -> list[tuple[float, ...]]:
    return [row(source, t_s, sample) for sample in samples]


def _float(value: float | str | None) -> float:
    if value is None:
        return math.nan
    return _ROLE_NUMBERS[value] if isinstance(value, str) else float(value)  # type: ignore[index]
