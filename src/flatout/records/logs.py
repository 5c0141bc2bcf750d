"""What a training log comes to: the record behind `flatout logs`.

`None` means that the log does not say. Rates are of steps (`it_per_s`) and of samples; only the latter compare between
batches of different size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.records.message import Message

SCHEMA = 1

PauseKind = Literal["evaluation", "checkpoint", "pause"]


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A stretch of the log: the step and the time (seconds since the first reading) at its end, and its rates."""

    step: float | None
    t_s: float | None
    it_per_s: float | None
    samples_per_s: float | None
    data_share: float | None


@dataclass(frozen=True, slots=True)
class Stall:
    """Time lost between two readings: what the steps between them take otherwise is not in it."""

    line: int
    step: float | None
    lost_s: float
    kind: PauseKind


@dataclass(frozen=True, slots=True)
class Pauses:
    """All stalls of one kind. `every_steps` is None where they follow no rhythm."""

    kind: PauseKind
    count: int
    every_steps: float | None
    mean_s: float
    longest_s: float
    longest_line: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """How the pace changed from the first to the last reading, pauses left out. 0.1: 10% more it/s at the end."""

    change: float
    steady: bool


@dataclass(frozen=True, slots=True)
class LogSummary:
    """One log. `it_per_s` is the typical pace; `whole_it_per_s` has the pauses in it."""

    file: str
    format: str
    readings: int
    lines: int
    first_step: float | None
    last_step: float | None
    duration_s: float | None
    it_per_s: float | None
    whole_it_per_s: float | None
    samples_per_s: float | None
    whole_samples_per_s: float | None
    batch_size: float | None
    # Where the batch size is from, in words.
    batch_from: Message | None
    step_ms: float | None
    data_ms: float | None
    data_share: float | None
    trend: Trend | None
    stalls: tuple[Stall, ...]
    pauses: tuple[Pauses, ...]
    points: tuple[LogPoint, ...]
    first_loss: float | None = None
    last_loss: float | None = None


@dataclass(frozen=True, slots=True)
class LogComparison:
    """The second log against the first, as ratios: by samples/s where both say it, with an interval of 95%."""

    by: Literal["samples/s", "it/s"]
    ratio: float
    low: float
    high: float
    it_ratio: float | None
    same_batch: bool | None
    sentence: Message
    hint: Message | None = None
