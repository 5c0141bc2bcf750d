"""A run over time, small enough to draw: curves, marks, processes and how long its steps took.

`None` among values is "not measured". Curves of a long run have fewer moments than were recorded, but keep every peak.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flatout.records.report import Location


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over the same moments, in seconds since the run began."""

    t_s: tuple[float, ...]
    values: dict[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Mark:
    """An evaluation or a checkpoint; `count` of them where they lie too close to be told apart."""

    phase: str
    start_s: float
    end_s: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process of the watched tree over its life. `cpu_cores` is the mean of processor seconds a second."""

    pid: int
    role: str
    cpu_cores: float | None
    memory_peak_bytes: float | None
    read_bytes_per_s: float | None
    threads: float | None
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long the steady steps took. `counts` has one entry less than `edges_ms`."""

    median_ms: float
    p95_ms: float
    p99_ms: float
    longest_ms: float
    edges_ms: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of the user's code around a place, as they were when the run began."""

    location: Location
    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingLine:
    """A setting as it was configured and as it lived. `state`: "arrived", "lost", "other" or "not configured"."""

    name: str
    configured: str | None
    # Where it was configured: a file and line, or the command line.
    place: str | None
    live: str | None
    state: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the charts of a run show, by the name of the chart. A chart for which nothing was measured is absent."""

    # The last moment that anything was seen at.
    end_s: float
    curves: dict[str, Curves] = field(default_factory=dict)
    # The most there is of what a chart shows, in its unit: memory, gpu_memory.
    limits: dict[str, float] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    processes: tuple[ProcessUse, ...] = ()
    # Processes that are not in the list above.
    more_processes: int = 0
    step_times: StepTimes | None = None
    # GPUs whose mean the curves show.
    gpus: int = 0


# For other tools: some steps of a run as tracks of a trace viewer (its times are microseconds since the first moment
# shown), and curves over all of them.


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that took time. Those inside it are its parts, and lie within it."""

    name: str
    start_us: float
    length_us: float
    facts: dict[str, object] = field(default_factory=dict)
    parts: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Track:
    """One line of slices that do not overlap. `kind` is steps, pauses, loaders, device or fetching."""

    kind: str
    name: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A figure over time, with its unit in the name."""

    name: str
    t_us: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """A training process, a loader's worker, or (pid 0) what was sampled of the machine."""

    name: str
    pid: int
    tracks: tuple[Track, ...] = ()
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """`steps` are the first and last number of each stretch that is shown, counted from 1."""

    run: str
    steps: tuple[tuple[int, int], ...]
    processes: tuple[TracedProcess, ...]
    # What a reader has to know about how it was made.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scalar:
    """One curve: step (counted from 1), calendar time and value of each point, with the unit in the name."""

    name: str
    steps: tuple[int, ...]
    unix_s: tuple[float, ...]
    values: tuple[float, ...]
