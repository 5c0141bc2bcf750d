"""The processes that trained, and their steps as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.steady import Known, StepTimes, find_steady, step_error, warmup_causes
from flatout.records.report import PHASES, Location, Warmup
from flatout.store.recording import Recording
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

_UNKNOWN_SAMPLES = 0xFFFFFFFF
# A negative duration written as unsigned: the clock stepped back.
_NEGATIVE = 1 << 63
Floats = NDArray[np.float64]
# A report asks more than once, and a million steps take half a second to arrange.
_ARRANGED: WeakKeyDictionary[StoredRun, tuple[Rank, ...]] = WeakKeyDictionary()
_DATA = PHASES.index("data")
# CUDA queues some 1,024 launches, and the step of a very small model makes 32.
_MOST_QUEUED = 32
# What a script does now and then between its steps: no part of what a step takes.
_PAUSES = tuple(PHASES.index(name) for name in ("eval", "checkpoint", "logging"))


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

    def where(self, chosen: NDArray[np.bool_]) -> Steps:
        # Views of the arrays where nothing is left out in between: a million steps are not copied.
        first = int(np.argmax(chosen)) if chosen.any() else len(chosen)
        part: Any = slice(first, None) if chosen[first:].all() else chosen
        return Steps(*(getattr(self, column.name)[part] for column in fields(self)))

    @cached_property
    def training_s(self) -> Floats:
        """Seconds of one step of each record, without evaluations, checkpoints and logging."""
        paused_s = self.phase_s[:, _PAUSES].sum(axis=1, dtype=np.float64)
        return np.asarray(np.maximum(self.wall_s - paused_s, 1e-3 * self.wall_s) / self.count)

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
    is_steady: NDArray[np.bool_]
    warmup: Warmup
    # Seconds of the steady part that went into compiling; None where it was not recorded step by step.
    compile_s: float | None = None

    @property
    def warmup_steps(self) -> int:
        return self.warmup.steps

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

    @property
    def first_steady(self) -> int:
        """The number of the first steady step."""
        return int(self.steady.index[0]) - int(self.steady.count[0]) + 1 if len(self.steady) else 0

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
            is_steady, warmup = divide_steps(recording, steps)
            steady = steps.where(is_steady)
            compile_s = float(_compile_seconds(recording, steps)[is_steady].sum())
            is_told = bool(recording.values("compile"))
            lines = run.lines_of(recording)
            ranks.append(Rank(recording, lines, steps, steady, is_steady, warmup, compile_s if is_told else None))
    return tuple(sorted(ranks, key=lambda rank: (rank.number is None, rank.number or 0, rank.recording.path.name)))


def divide_steps(recording: Recording, steps: Steps) -> tuple[NDArray[np.bool_], Warmup]:
    """Which steps are steady, and what the others were busy with."""
    times = StepTimes(
        step_s=steps.training_s,
        count=steps.count,
        data_s=steps.phase_s[:, _DATA] / steps.count,
        compile_s=_compile_seconds(recording, steps),
        epochs=epoch_starts(recording, steps),
        own_s=steps.own_s,
        settled=int(np.searchsorted(steps.index, _settled_at(recording), side="right")),
    )
    known = _known(recording)
    part = find_steady(times, known)
    steady_s = steps.training_s[part.is_steady]
    warm = ~part.is_steady
    return part.is_steady, Warmup(
        steps=int(steps.count[warm].sum()),
        seconds=float(steps.wall_s[warm].sum()),
        causes=warmup_causes(times, part, known),
        steady_steps=int(steps.count[part.is_steady].sum()),
        step_error=step_error(steady_s),
        varied_ms=part.varied_ms,
    )


def _compile_seconds(recording: Recording, steps: Steps) -> Floats:
    """What the compiler took in each record of steps: booked on the longest of those that were read together."""
    taken_s = np.zeros(len(steps))
    for compiled in recording.values("compile"):
        first, end = np.searchsorted(steps.index, (compiled["after"], compiled["index"]), side="right").tolist()
        if end > first:
            longest = first + int(np.argmax(steps.wall_s[first:end]))
            taken_s[longest] = min(compiled["seconds"], steps.wall_s[longest])
    return taken_s


def epoch_starts(recording: Recording, steps: Steps) -> NDArray[np.int64]:
    """Records in which the loader that trains was begun again."""
    loaders = _last_state(recording).get("training_loaders") or ()
    numbers, begun_ns = recording.column("epoch", "loader"), recording.column("epoch", "start_ns")
    if loaders:
        begun_ns = begun_ns[np.isin(numbers, list(loaders))]
    return np.searchsorted(steps.start_ns, np.sort(begun_ns), side="right").astype(np.int64) - 1


def _settled_at(recording: Recording) -> int:
    """The index of the last step in which a remedy was not yet as it then stayed; -1 where there was none."""
    latest = {value["id"]: value for value in told(recording, "remedy") if isinstance(value.get("id"), str)}
    numbers = [-1]
    for value in latest.values():
        live = value.get("live")
        begun = (live.get("settled_at") or live.get("since_step")) if isinstance(live, dict) else None
        ended = value.get("step") if value.get("state") == "reverted" and begun else None
        numbers += [number - 1 for number in (begun, ended) if isinstance(number, int)]
    return max(numbers)


def _known(recording: Recording) -> Known:
    state = _last_state(recording)
    workers = recording.column("epoch", "workers")
    made = told(recording, "loader")
    ahead = [int(loader.get("num_workers") or 0) * int(loader.get("prefetch_factor") or 0) for loader in made]
    on_device = state.get("device_name") is not None
    return Known(
        has_workers=bool(len(workers) and workers.max() > 0),
        prefetched=max(ahead, default=0),
        queued=_MOST_QUEUED if on_device else 0,
        searches_cudnn=on_device and bool(state.get("cudnn_benchmark")),
        compile_s=float(state.get("compile_s") or 0.0),
    )


def _last_state(recording: Recording) -> dict[str, Any]:
    states = told(recording, "torch")
    return states[-1] if states else {}


def mean_step_ms(ranks: Sequence[Rank]) -> float | None:
    """Of the steady steps of all ranks."""
    steps = sum(rank.steady.total for rank in ranks)
    return 1e3 * sum(rank.steady.total_wall_s for rank in ranks) / steps if steps else None


def told(recording: Recording, what: str) -> list[dict[str, Any]]:
    """Texts of this name, in the order they were written; what is no record is none of ours."""
    return [value for value in recording.values(what) if isinstance(value, dict)]


def call_sites_of(recording: Recording) -> dict[int, tuple[Location, str, str]]:
    """Where each call site is, its function and its operation, by its number."""
    return {
        site["id"]: (
            Location(str(site.get("file", "")), int(site.get("line") or 0)),
            str(site.get("function", "")),
            str(site.get("op", "")),
        )
        for site in told(recording, "site")
        if "id" in site
    }


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
