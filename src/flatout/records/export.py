"""A run for other tools: some of its steps as tracks of a trace viewer, and curves over all of its steps.

Times of a trace are microseconds since the first moment shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
