"""What a stretch of watching comes to: the record behind the closing summary of `flatout watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flatout.records.message import Message

# How a GPU's utilisation compares with the usual targets; "light" is busy by the clock, yet far from its power.
GpuStatus = Literal["on target", "light", "unsteady", "room", "idle", "too short", "not measured"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation, and the extremes, of `count` readings."""

    mean: float
    std: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """One GPU over the whole watch. `fluctuation_points` is the width of the band holding 80% of utilisation readings.

    `throttled` maps a reason to the share of readings in which it held the clock down.
    """

    gpu: int
    name: str | None
    status: GpuStatus
    sentence: Message
    util_percent: Spread | None = None
    fluctuation_points: float | None = None
    memory_util_percent: Spread | None = None
    memory_used_bytes: Spread | None = None
    memory_total_bytes: float | None = None
    own_memory_bytes: Spread | None = None
    power_w: Spread | None = None
    power_share: Spread | None = None
    temperature_c: Spread | None = None
    sm_active_share: Spread | None = None
    tensor_active_share: Spread | None = None
    dram_active_share: Spread | None = None
    throttled: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostSummary:
    """The machine over the whole watch. CPU of main and workers is each process's, as a share of one core."""

    cpu_share: Spread | None = None
    iowait_share: Spread | None = None
    memory_used_share: Spread | None = None
    io_pressure_percent: Spread | None = None
    main_cpu_share: Spread | None = None
    worker_cpu_share: Spread | None = None
    workers: int | None = None
    cpus_allowed: float | None = None


@dataclass(frozen=True, slots=True)
class MonitorSummary:
    """The whole watch. `skipped_lines` counts lines of a CSV that could not be read."""

    duration_s: float
    readings: int
    gpus: tuple[GpuSummary, ...]
    host: HostSummary
    notes: tuple[Message, ...] = ()
    reason: Message | None = None
    skipped_lines: int = 0
