"""The processes that trained, and their steps as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flatout.records.report import PHASES
from flatout.store.recording import Recording
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

_UNKNOWN_SAMPLES = 0xFFFFFFFF
# A negative duration written as unsigned: the clock stepped back.
_NEGATIVE = 1 << 63
Floats = NDArray[np.float64]
# A report asks more than once, and a million steps take half a second to arrange.
_ARRANGED: WeakKeyDictionary[StoredRun, tuple[Rank, ...]] = WeakKeyDictionary()
_FEWEST = 4
_WINDOW = 5
_MOST_OF_RUN = 0.2
_CLOSE = 0.25
_SLOW = 2.0
# The typical step is known well enough from this many.
_TYPICAL_FROM = 20_000


@dataclass(frozen=True)
class Steps:
    """Steps in order, a row for each record (a record may hold several steps of a very long run)."""

    index: NDArray[Any]
    start_ns: NDArray[Any]
    wall_s: Floats
    count: Floats
    samples: Floats  # NaN: not known
    phase_s: NDArray[np.float32]  # one column a phase, in the order of PHASES
    own_s: Floats
    queue_depth: Floats  # NaN: not measured

    def __len__(self) -> int:
        return len(self.wall_s)

    def since(self, first: int) -> Steps:
        return Steps(*(getattr(self, column.name)[first:] for column in fields(self)))

    @cached_property
    def total(self) -> int:
        return int(self.count.sum())

    @cached_property
    def total_wall_s(self) -> float:
        return float(self.wall_s.sum())

    @cached_property
    def step_ms(self) -> float | None:
        return 1e3 * self.total_wall_s / self.total if self.total else None

    @cached_property
    def phase_total_s(self) -> Floats:
        """Seconds in each phase. They add up to the wall time: what rounding leaves over is `other`."""
        total = self.phase_s.sum(axis=0, dtype=np.float64)
        named = total[:-1].sum()
        if named > self.total_wall_s:
            total[:-1] *= self.total_wall_s / named
            named = self.total_wall_s
        total[-1] = self.total_wall_s - named
        return np.asarray(total)

    @cached_property
    def samples_per_s(self) -> float | None:
        """Over the steps whose batch size is known, provided that most are."""
        known = np.isfinite(self.samples)
        wall_s = float(self.wall_s[known].sum())
        if wall_s <= 0 or wall_s < 0.5 * self.total_wall_s:
            return None
        return float(self.samples[known].sum()) / wall_s


@dataclass(frozen=True)
class Rank:
    """One training process: everything it did, and the part after warm-up."""

    recording: Recording
    lines: Recording | None
    steps: Steps
    steady: Steps
    warmup_steps: int

    @property
    def number(self) -> int | None:
        rank = self.recording.facts.get("rank")
        return rank if isinstance(rank, int) else None

    @property
    def host(self) -> str | None:
        return self.recording.facts.get("host")

    @property
    def name(self) -> str:
        if self.number is not None:
            return f"rank {self.number}"
        return f"process {self.recording.facts.get('pid', self.recording.path.stem)}"

    @property
    def exit(self) -> dict[str, Any] | None:
        """What the process wrote when it came to an end by itself."""
        exits = self.recording.values("exit")
        return exits[-1] if exits and isinstance(exits[-1], dict) else None

    @property
    def started_ns(self) -> int:
        """When the process began, by its own host's clock."""
        start = self.recording.facts.get("start_ns")
        return start if isinstance(start, int) else int(self.steps.start_ns[0])

    def last_seen_ns(self) -> int:
        """The end of its last record, by its own host's clock."""
        ends = [int(self.steps.start_ns[-1]) + int(self.steps.wall_s[-1] * 1e9)] if len(self.steps) else [0]
        for kind in ("span", "epoch", "fetch"):
            if self.recording.count(kind):
                ends.append(int(self.recording.column(kind, "end_ns").max()))
        if self.lines is not None and self.lines.count("beat"):
            ends.append(int(self.lines.column("beat", "end_ns").max()))
        return max(ends)


def training_ranks(run: StoredRun) -> tuple[Rank, ...]:
    """Every process that took steps, by rank. A launcher and a loader's workers took none."""
    if run not in _ARRANGED:
        _ARRANGED[run] = _arranged(run)
    return _ARRANGED[run]


def _arranged(run: StoredRun) -> tuple[Rank, ...]:
    ranks = []
    for recording in run.recordings:
        if recording.count("step") and recording.facts.get("role") != "worker":
            steps = read_steps(recording)
            first = warmup_length(steps.wall_s / steps.count)
            warmup = int(steps.count[:first].sum())
            ranks.append(Rank(recording, run.lines_of(recording), steps, steps.since(first), warmup))
    return tuple(sorted(ranks, key=lambda rank: (rank.number is None, rank.number or 0, rank.recording.path.name)))


def first_recordings(run: StoredRun, ranks: Sequence[Rank]) -> list[Recording]:
    """Of the first rank; where nothing trained, of every process that might have."""
    return [rank.recording for rank in ranks[:1]] or [r for r in run.recordings if r.facts.get("role") == "trainer"]


def read_steps(recording: Recording) -> Steps:
    rows = recording.records["step"]
    # A record that was still open when its chunk was full is written again in the next: the later one counts.
    start_ns = rows["start_ns"]
    rows = rows[np.append(start_ns[1:] != start_ns[:-1], True)]
    picked = {name: _column(rows, name) for name in ("wall_ns", "steps", "samples", "own_ns", "queue_depth")}
    wall_ns = np.where(rows["wall_ns"] < _NEGATIVE, rows["wall_ns"], 0)
    samples = np.where(picked["samples"] == _UNKNOWN_SAMPLES, np.nan, picked["samples"])
    return Steps(
        index=rows["index"],
        start_ns=rows["start_ns"],
        wall_s=wall_ns.astype(np.float64) * 1e-9,
        count=np.maximum(picked["steps"], 1.0),
        samples=samples,
        phase_s=_by_phase(rows["phase_s"], recording.phases),
        own_s=picked["own_ns"] * 1e-9,
        queue_depth=np.where(picked["queue_depth"] < 0, np.nan, picked["queue_depth"]),
    )


def _column(rows: NDArray[Any], name: str) -> Floats:
    if name not in (rows.dtype.names or ()):
        return np.full(len(rows), np.nan)
    return np.asarray(rows[name], np.float64)


def _by_phase(phase_s: NDArray[np.float32], names: tuple[str, ...]) -> NDArray[np.float32]:
    """The recording's phases in our order. A phase that is new to us is `other`."""
    if names == PHASES:
        return np.nan_to_num(phase_s, nan=0.0)
    ours = np.zeros((len(phase_s), len(PHASES)), np.float32)
    for column, name in enumerate(names[: phase_s.shape[1]]):
        ours[:, PHASES.index(name) if name in PHASES else -1] += np.nan_to_num(phase_s[:, column], nan=0.0)
    return ours


def during_steps(rows: Rows, ranks: Sequence[Rank], looks_back_s: float = 0.0, or_all: bool = True) -> Rows:
    """The samples taken while training was steady; if none fell there (a very short run) all, unless told otherwise.

    A sample tells of `looks_back_s` before it: the first of them are left out, but never half of the time.
    """
    spans = [rank.steady for rank in ranks if len(rank.steady)]
    if not spans:
        return rows
    start_s = min(int(steps.start_ns[0]) for steps in spans) * 1e-9
    end_s = max(int(steps.start_ns[-1]) * 1e-9 + float(steps.wall_s[-1]) for steps in spans)
    t_s = rows.column("t_s")
    inside = (t_s >= start_s + min(looks_back_s, 0.5 * (end_s - start_s))) & (t_s <= end_s)
    return rows if or_all and not inside.any() else keep_rows(rows, inside)


def keep_rows(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    return Rows(rows.columns, rows.values[chosen], rows.lost)


def reduce_known(values: Floats, reduce: Callable[[Floats], Any] = np.mean) -> float | None:
    """The mean (or median, maximum …) of those that were measured; None where none was."""
    known = values[np.isfinite(values)]
    return float(reduce(known)) if len(known) else None


# Where a run has settled: the steps before that (first batch, compilation, allocator, autotuning) are warm-up.


def warmup_length(step_s: NDArray[np.float64]) -> int:
    """How many steps at the beginning are warm-up.

    The typical step is the median of the second half. Leading steps are warm-up while they take over twice that, or
    while the median of five steps from there is over a quarter off it. At most a fifth of the run is warm-up (but a
    slow first step always may be); a run that has not settled by then varies by nature and only loses its slow head.
    Fewer than four steps are all kept.
    """
    count = len(step_s)
    if count < _FEWEST:
        return 0
    typical = float(np.median(step_s[count // 2 :][-_TYPICAL_FROM:]))
    most = max(1, int(count * _MOST_OF_RUN))
    slow_head = 0
    while slow_head < most and step_s[slow_head] > _SLOW * typical:
        slow_head += 1
    for first in range(slow_head, most + 1):
        window = step_s[first : first + _WINDOW]
        if abs(float(np.median(window)) - typical) <= _CLOSE * typical and window[0] <= _SLOW * typical:
            return first
        if first >= _TYPICAL_FROM:
            break
    return slow_head
