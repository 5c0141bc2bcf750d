"""What a detector may look at: the report of a run, and what else was learnt from its record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from flatout.records.report import Location, PhaseShare, RunReport, WorkerCost

NOT_MEASURED = math.nan


@dataclass(frozen=True, slots=True)
class LoaderUse:
    """One DataLoader as it lived, and what it cost. Several epochs, or several equal loaders, are one."""

    number: int
    # As DataLoader has them; `made_at` is where the script made it.
    settings: dict[str, Any]
    made_at: Location | None
    # The one whose batches go through backward most.
    trains: bool
    cost: WorkerCost | None
    # How often an iterator was made, and the seconds that making one took (worker start-up is in it).
    epochs: int = 0
    iterator_s: float | None = None
    # How many DataLoader objects with these settings the script made.
    made: int = 1

    @property
    def workers(self) -> int:
        return int(self.settings.get("num_workers") or 0)

    @property
    def batch_size(self) -> int | None:
        size = self.settings.get("batch_size") or self.settings.get("batch_sampler_size")
        return int(size) if size else None

    @property
    def sample_ms(self) -> float | None:
        """Processor milliseconds of one process for one sample: fetch and collate."""
        return None if self.cost is None else self.cost.fetch_ms_per_sample + self.cost.collate_ms_per_sample


@dataclass(frozen=True, slots=True)
class Series:
    """Something sampled over the run, oldest first; seconds since the run began."""

    t_s: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run as detectors see it. Everything is of the steady part unless it says otherwise."""

    report: RunReport
    loaders: tuple[LoaderUse, ...] = ()
    # Processors the run may use: affinity and container quota.
    cpus: float = 1.0
    # Samples a step of one rank, where known.
    samples_per_step: float | None = None
    # Named series of telemetry: "rss_bytes", "gpu_memory_bytes", "disk_busy_share" …; absent where not sampled.
    series: dict[str, Series] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        return self.report.run.device != "cpu"

    @property
    def step_ms(self) -> float:
        """Wall milliseconds of a mean step; 0 without any."""
        return sum(phase.ms for phase in self.report.phases.values())

    def phase(self, name: str) -> PhaseShare:
        return self.report.phases.get(name, PhaseShare(0.0, 0.0))

    @property
    def starved_ms(self) -> float:
        """Milliseconds a step that the computing side stands still for want of a batch."""
        gpu = self.report.gpu
        if self.on_gpu and gpu is not None and gpu.starved_share is not None:
            return gpu.starved_share * self.step_ms
        return self.phase("data").ms

    @property
    def device_busy_ms(self) -> float | None:
        """Milliseconds a step that the GPU works at most: its timeline less what it starved."""
        gpu = self.report.gpu
        if not self.on_gpu or gpu is None or "step" not in gpu.device_ms:
            return None
        return max(0.0, gpu.device_ms["step"] - gpu.device_ms.get("starved", 0.0))

    @property
    def training_loader(self) -> LoaderUse | None:
        return next((loader for loader in self.loaders if loader.trains), None)

    @property
    def drained_share(self) -> float | None:
        """Share of looks at which the GPU had nothing queued; None where it was not measured."""
        return None if self.report.gpu is None else self.report.gpu.drained_share
