"""What a run took of its machine, in the detail that detectors need: evaluations, memory by role, each GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from flatout.records.report import Location
from flatout.records.sample import Role


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Evaluations among the training steps; one after the last step is not among them."""

    count: int
    median_s: float
    # Where the script calls its evaluation, or loops over the validation data.
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class OomKill:
    """Processes that the kernel ended for want of memory, and the largest of them as it was last seen."""

    kills: int
    role: Role | None = None
    pid: int | None = None
    rss_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU on which the run holds memory, while training was steady. Shares are 0..1; None: not measured."""

    gpu: int
    name: str | None = None
    memory_total_bytes: float | None = None
    # Everybody's, and that of the run alone.
    memory_used_bytes: float | None = None
    own_memory_bytes: float | None = None
    util_percent: float | None = None
    temperature_c: float | None = None
    dram_active: float | None = None
    # Share of the samples in which each reason held the clock down.
    throttled: dict[str, float] = field(default_factory=dict)
    # Median SM clock while something other than the power limit held it down, and the highest of the whole run.
    slowed_clock_mhz: float | None = None
    best_clock_mhz: float | None = None
