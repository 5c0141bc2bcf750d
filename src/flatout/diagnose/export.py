"""What a run recorded, for others to read: some steps as tracks, everything as tables, and scalar curves.

A step's recording holds how long each phase took in it, not when: its phases are laid out in their usual order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Floats, Rank, Steps, call_sites_of, training_ranks
from flatout.diagnose.resources import sampled_curves
from flatout.diagnose.timeline import bucket_starts
from flatout.errors import FlatoutError
from flatout.records.report import PHASES
from flatout.records.sample import ROLES
from flatout.records.timeline import Counter, Scalar, Slice, Trace, TracedProcess, Track
from flatout.store.recording import Recording
from flatout.store.run import StoredRun

# Steps of all ranks together: some ten events and a kilobyte each.
MOST_STEPS = 4000
_AROUND = 2
# How far from the slowest step a typical one is looked for, so that both are on one screen.
_NEARBY = 50
_TYPICAL = 0.02
_MARGIN_S = 1.0
_MOST_POINTS = 2000
_MOST_SLICES = 5000
# A usual order; `other` is whatever happened between.
_ORDER = ("data", "h2d", "forward", "sync", "backward", "optimizer", "logging", "checkpoint", "eval", "gc", "other")
_DEVICE = ("starved", "forward", "backward", "optimizer", "other")
_RANGE = re.compile(r"(\d*):(\d*)|(\d+)")
_NOTES = {
    "order": "the phases of a step are drawn in their usual order: their lengths are measured, their order is not",
    "device": "the device's times are drawn from the start of their step on the host: the device may lag behind it",
    "hosts": "hosts are put on one axis by their calendar clocks, which may disagree",
}
# Counters of the machine: name, source, column, factor.
_COUNTERS = (
    ("GPU {gpu} utilisation (%)", "gpu", "util_percent", 1.0),
    ("GPU {gpu} power (W)", "gpu", "power_w", 1.0),
    ("GPU {gpu} memory (GiB)", "gpu", "memory_used_bytes", 2.0**-30),
    ("GPU {gpu} SM active (%)", "gpu", "sm_active_share", 100.0),
    ("CPU of the run (cores)", "processes", "cpu_share", 1.0),
    ("memory of the run, shared pages counted each time (GiB)", "processes", "rss_bytes", 2.0**-30),
    ("memory available (GiB)", "host", "memory_available_bytes", 2.0**-30),
    ("read from storage (MB/s)", "processes", "read_bytes_per_s", 1e-6),
)


@dataclass(frozen=True, slots=True)
class _Window:
    """A stretch of steps, counted from 1, and when it was, in ns of the first rank's clock."""

    first: int
    last: int
    start_ns: int
    end_ns: int


def make_trace(run: StoredRun, steps: str | None = None) -> Trace:
    """The steps that were asked for as `A:B`; without, the slowest and a typical one with their neighbours."""
    ranks = training_ranks(run)
    if not ranks:
        raise FlatoutError(f"run {run.id!r} has no training step, so there is nothing to trace")
    chosen = _asked(steps, ranks[0].steps) if steps else _telling(ranks[0])
    windows = [_window(ranks[0].steps, first, last) for first, last in chosen]
    # A record of a very long run may hold more steps than were asked for: what is drawn is counted.
    drawn = len(ranks) * sum(int(_inside(ranks[0].steps, window.first, window.last).sum()) for window in windows)
    if drawn > MOST_STEPS:
        raise FlatoutError(f"--steps {steps}: {drawn:,} steps of all ranks are too many, at most {MOST_STEPS:,}")
    zero_ns = min(window.start_ns for window in windows)
    processes = [_trained(rank, windows, zero_ns, offset_ns(rank, ranks[0])) for rank in ranks]
    processes += _workers(run, ranks, windows, zero_ns)
    # Samples were taken where the run was started, and by that host's clock.
    is_here = run.manifest.host in (None, ranks[0].host)
    sampled = sampled_curves(run, _COUNTERS) if is_here else ()
    counters = (_meanwhile(name, t_s, values, windows, zero_ns) for name, t_s, values in sampled)
    machine = TracedProcess("machine", 0, (), tuple(counter for counter in counters if counter is not None))
    notes = [_NOTES["order"]]
    if any(track.kind == "device" for process in processes for track in process.tracks):
        notes.append(_NOTES["device"])
    if len({rank.host for rank in ranks}) > 1:
        notes.append(_NOTES["hosts"])
    shown = tuple((window.first, window.last) for window in windows)
    return Trace(run.id, shown, (*processes, *([machine] if machine.counters else [])), tuple(notes))


# Which steps.


def _asked(text: str, steps: Steps) -> list[tuple[int, int]]:
    match = _RANGE.fullmatch(text.strip())
    most = int(steps.index[-1]) + 1
    if match is None:
        raise FlatoutError(f"--steps must be A:B or one number, counted from 1, got {text!r}")
    first = int(match[3] or match[1] or 1)
    last = int(match[3] or match[2] or most)
    if not 1 <= first <= last or first > most:
        raise FlatoutError(f"--steps {text}: the run has steps 1 to {most:,}")
    return [(first, min(last, most))]


def _telling(rank: Rank) -> list[tuple[int, int]]:
    """The slowest steady step and one like most others near it; one stretch if they touch."""
    steps = rank.steady if len(rank.steady) else rank.steps
    each_s = steps.wall_s / steps.count
    slowest = int(np.argmax(each_s))
    near = np.arange(max(0, slowest - _NEARBY), min(len(steps), slowest + _NEARBY + 1))
    off = np.abs(each_s[near] - np.median(each_s)) / max(float(np.median(each_s)), 1e-12)
    # Of those that are as good as typical the nearest.
    typical = int(near[np.lexsort((np.abs(near - slowest), np.maximum(off, _TYPICAL)))[0]])
    most = int(rank.steps.index[-1]) + 1
    found = []
    for at in sorted({slowest, typical}):
        last = int(steps.index[at]) + 1
        found.append((max(1, last - int(steps.count[at]) + 1 - _AROUND), min(most, last + _AROUND)))
    if len(found) == 2 and found[1][0] <= found[0][1] + 1:
        return [(found[0][0], found[1][1])]
    return found


def _window(steps: Steps, first: int, last: int) -> _Window:
    rows = np.flatnonzero(_inside(steps, first, last))
    if not len(rows):
        raise FlatoutError(f"steps {first} to {last} were not recorded")
    start_ns, at = int(steps.start_ns[rows[0]]), rows[-1]
    return _Window(first, last, start_ns, int(steps.start_ns[at]) + int(steps.wall_s[at] * 1e9))


def _inside(steps: Steps, first: int, last: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    numbers = steps.index.astype(np.int64) + 1
    return np.asarray((numbers >= first) & (numbers - steps.count.astype(np.int64) + 1 <= last))


def offset_ns(rank: Rank, first: Rank) -> int:
    """What to add to a time of this rank's host to have it by the first one's."""
    if rank.host == first.host:
        return 0
    own, other = _ahead_ns(rank), _ahead_ns(first)
    if own is None or other is None:
        return int(first.steps.start_ns[0]) - int(rank.steps.start_ns[0])
    return own - other


def _ahead_ns(rank: Rank) -> int | None:
    """How far the calendar is ahead of the monotonic clock on this rank's host."""
    unix_ns, own_ns = (rank.recording.facts.get(name) for name in ("start_unix_ns", "start_ns"))
    return unix_ns - own_ns if isinstance(unix_ns, int) and isinstance(own_ns, int) else None


# What a process did.


def _trained(rank: Rank, windows: Sequence[_Window], zero_ns: int, ahead_ns: int) -> TracedProcess:
    steps = rank.steps
    rows = np.flatnonzero(np.any([_inside(steps, window.first, window.last) for window in windows], axis=0))
    start_us = (steps.start_ns[rows].astype(np.int64) + ahead_ns - zero_ns) / 1e3
    known = {name: counted(rank.recording, name) for name in ("syncs", "copies")}
    slices = []
    for row, at_us in zip(rows.tolist(), start_us.tolist(), strict=True):
        extra = {name: int(values[row]) for name, values in known.items() if np.isfinite(values[row])}
        slices.append(_step(steps, row, at_us, extra))
    tracks = [Track("steps", "steps", tuple(slices)), *_beside(rank.recording, windows, zero_ns, ahead_ns)]
    device = _on_device(rank.recording, steps, rows, start_us)
    if device:
        tracks.append(Track("device", "device (sampled steps)", device))
    counters = [_counter("batches ready", start_us, steps.queue_depth[rows])]
    counters += [_counter(f"{name} a step", start_us, values[rows]) for name, values in known.items()]
    pid = rank.recording.facts.get("pid")
    return TracedProcess(
        f"{rank.name}{_on_host(rank.host)}",
        pid if isinstance(pid, int) else 0,
        tuple(tracks),
        tuple(counter for counter in counters if counter is not None and any(counter.values)),
    )


def counted(recording: Recording, name: str) -> Floats:
    """A count of each step, row by row as `read_steps` has them: a record that was written twice is read once."""
    start_ns = recording.records["step"]["start_ns"]
    values = recording.column("step", name)[np.append(start_ns[1:] != start_ns[:-1], True)]
    return np.asarray(values, np.float64)


def _on_host(host: str | None) -> str:
    return f" on {host}" if host else ""


def _step(steps: Steps, row: int, start_us: float, extra: dict[str, int]) -> Slice:
    count, last = int(steps.count[row]), int(steps.index[row]) + 1
    name = f"step {last}" if count == 1 else f"steps {last - count + 1}–{last}"
    length_us = float(steps.wall_s[row]) * 1e6
    facts: dict[str, object] = {}
    if np.isfinite(steps.samples[row]):
        facts["samples"] = int(steps.samples[row])
    if np.isfinite(steps.queue_depth[row]):
        facts["batches_ready"] = int(steps.queue_depth[row])
    by_name = dict(zip(PHASES, (steps.phase_s[row].astype(np.float64) * 1e6).tolist(), strict=True))
    lengths = [(phase, by_name[phase]) for phase in _ORDER if by_name[phase] > 0]
    return Slice(name, start_us, length_us, facts | extra, _end_to_end(lengths, start_us, length_us))


def _end_to_end(lengths: Iterable[tuple[str, float]], start_us: float, room_us: float) -> tuple[Slice, ...]:
    """One after the other, and never beyond what they are parts of: rounding must not make them overlap."""
    found, at_us = [], start_us
    for name, length_us in lengths:
        length_us = min(length_us, start_us + room_us - at_us)
        if length_us > 0:
            found.append(Slice(name, at_us, length_us))
            at_us += length_us
    return tuple(found)


def _beside(recording: Recording, windows: Sequence[_Window], zero_ns: int, ahead_ns: int) -> list[Track]:
    """Pauses and new iterators, at the very times they were."""
    places = call_sites_of(recording)
    names = recording.phases
    pauses: list[Slice] = []
    for row in _within(recording, "span", windows, ahead_ns):
        span = recording.records["span"][row]
        where = places[int(span["site"])][0] if int(span["site"]) in places else None
        facts = {"at": f"{where.file}:{where.line}"} if where is not None and where.file else {}
        phase = int(span["phase"])
        name = names[phase] if phase < len(names) else "other"
        pauses.append(_timed(name, span, zero_ns, ahead_ns, facts))
    loaders = []
    for row in _within(recording, "epoch", windows, ahead_ns):
        epoch = recording.records["epoch"][row]
        name = f"new iterator of loader {int(epoch['loader'])}"
        loaders.append(_timed(name, epoch, zero_ns, ahead_ns, {"workers": int(epoch["workers"])}))
    tracks = [Track("pauses", "pauses", tuple(pauses)), Track("loaders", "loaders", tuple(loaders))]
    return [track for track in tracks if track.slices]


def _within(recording: Recording, kind: str, windows: Sequence[_Window], ahead_ns: int) -> list[int]:
    """Rows of a kind that lie in one of the stretches at least in part."""
    if not recording.count(kind):
        return []
    start, end = (recording.column(kind, name).astype(np.int64) + ahead_ns for name in ("start_ns", "end_ns"))
    pick = np.any([(end >= window.start_ns) & (start <= window.end_ns) for window in windows], axis=0)
    rows: list[int] = np.flatnonzero(pick)[:_MOST_SLICES].tolist()
    return rows


def _timed(name: str, record: np.void, zero_ns: int, ahead_ns: int, facts: Mapping[str, object]) -> Slice:
    start_ns, end_ns = int(record["start_ns"]), int(record["end_ns"])
    return Slice(name, (start_ns + ahead_ns - zero_ns) / 1e3, max(0, end_ns - start_ns) / 1e3, dict(facts))


def _on_device(
    recording: Recording, steps: Steps, rows: np.ndarray[tuple[int, ...], np.dtype[np.intp]], start_us: Floats
) -> tuple[Slice, ...]:
    if not recording.count("device"):
        return ()
    columns = {name: recording.column("device", f"{name}_ms") for name in (*_DEVICE, "step")}
    where = {int(index): row for row, index in enumerate(recording.column("device", "index").tolist())}
    found: list[Slice] = []
    for row, at_us in zip(rows.tolist(), start_us.tolist(), strict=True):
        sampled = where.get(int(steps.index[row]))
        if sampled is None or not np.isfinite(columns["step"][sampled]):
            continue
        # A slice ends where the next begins, however the two clocks differ.
        at_us = max(at_us, found[-1].start_us + found[-1].length_us if found else at_us)
        length_us = float(columns["step"][sampled]) * 1e3
        parts = [(name, float(columns[name][sampled]) * 1e3) for name in _DEVICE if columns[name][sampled] > 0]
        found.append(
            Slice(f"step {int(steps.index[row]) + 1}", at_us, length_us, {}, _end_to_end(parts, at_us, length_us))
        )
    return tuple(found)


def _workers(run: StoredRun, ranks: Sequence[Rank], windows: Sequence[_Window], zero_ns: int) -> list[TracedProcess]:
    """What the loaders' worker processes fetched; each interval holds several batches."""
    found = []
    for recording in run.recordings:
        rank = next((rank for rank in ranks if rank.host == recording.facts.get("host")), None)
        if recording.facts.get("role") != "worker" or rank is None:
            continue
        ahead_ns = offset_ns(rank, ranks[0])
        slices = []
        for row in _within(recording, "fetch", windows, ahead_ns):
            fetch = recording.records["fetch"][row]
            busy_ms = (int(fetch["fetch_ns"]) + int(fetch["collate_ns"])) * 1e-6
            facts = {"samples": int(fetch["samples"]), "busy_ms": round(busy_ms, 3)}
            slices.append(_timed(f"{int(fetch['batches'])} batches", fetch, zero_ns, ahead_ns, facts))
        if slices:
            pid = recording.facts.get("pid")
            tracks = (Track("fetching", "fetching", tuple(slices)),)
            found.append(
                TracedProcess(f"worker {pid}{_on_host(rank.host)}", pid if isinstance(pid, int) else 0, tracks)
            )
    return found


# What was sampled meanwhile.


def _meanwhile(name: str, t_s: Floats, values: Floats, windows: Sequence[_Window], zero_ns: int) -> Counter | None:
    bounds = ((window.start_ns * 1e-9 - _MARGIN_S, window.end_ns * 1e-9 + _MARGIN_S) for window in windows)
    pick = np.any([(t_s >= begin_s) & (t_s <= end_s) for begin_s, end_s in bounds], axis=0)
    return _counter(name, t_s[pick] * 1e6 - zero_ns / 1e3, values[pick])


def _counter(name: str, t_us: Floats, values: Floats) -> Counter | None:
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    if not known.any():
        return None
    every = -(-int(known.sum()) // _MOST_POINTS)
    return Counter(name, tuple(t_us[known][::every].tolist()), tuple(values[known][::every].tolist()))


# Columns of equal length by name. NaN, and an empty text, are "not measured".
Table = dict[str, NDArray[Any]]
SOURCES = ("gpu", "host", "cores", "processes", "disks", "network", "cgroup")
_COUNTS = ("batches", "backwards", "syncs", "copies", "flags")
# Points of a curve; of a longer run each is the mean of a stretch, beside the longest step in it.
MOST_POINTS = 1000
_CURVES = (
    ("gpu{gpu}/util_percent", "gpu", "util_percent", 1.0),
    ("gpu{gpu}/power_w", "gpu", "power_w", 1.0),
    ("gpu{gpu}/memory_gib", "gpu", "memory_used_bytes", 2.0**-30),
    ("gpu{gpu}/sm_active_percent", "gpu", "sm_active_share", 100.0),
    ("gpu{gpu}/tensor_active_percent", "gpu", "tensor_active_share", 100.0),
    ("host/cpu_cores", "processes", "cpu_share", 1.0),
    ("host/rss_gib", "processes", "rss_bytes", 2.0**-30),
    ("host/read_mb_per_s", "processes", "read_bytes_per_s", 1e-6),
    ("host/memory_available_gib", "host", "memory_available_bytes", 2.0**-30),
)


def make_tables(run: StoredRun) -> dict[str, Table]:
    """By name. Times are seconds since the first moment that anything was recorded at; empty tables are left out."""
    ranks = training_ranks(run)
    begin_s = _begin_s(run, ranks)
    found = {"steps": _joined([_steps(rank, ranks[0], begin_s) for rank in ranks])}
    found["device"] = _joined([_device(rank) for rank in ranks if rank.recording.count("device")])
    for source in SOURCES:
        found[f"telemetry_{source}"] = _telemetry(run, source, begin_s)
    return {name: table for name, table in found.items() if table and len(next(iter(table.values())))}


def _begin_s(run: StoredRun, ranks: tuple[Rank, ...]) -> float:
    moments = [int(rank.steps.start_ns[0]) * 1e-9 for rank in ranks[:1]]
    for source in SOURCES:
        rows = run.rows(source)
        if rows is not None and len(rows.values):
            moments.append(float(rows.column("t_s").min()))
    return min(moments, default=0.0)


def _joined(parts: list[Table]) -> Table:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _steps(rank: Rank, first: Rank, begin_s: float) -> Table:
    steps, count = rank.steps, len(rank.steps)
    start_ns = steps.start_ns.astype(np.int64) + offset_ns(rank, first)
    table: Table = {
        "rank": np.full(count, np.nan if rank.number is None else rank.number),
        "pid": np.full(count, rank.recording.facts.get("pid") or 0, np.int64),
        # Counted from 1; of the last one where a record of a very long run holds several.
        "step": steps.index.astype(np.int64) + 1,
        "steps": steps.count.astype(np.int64),
        "is_warmup": ~rank.is_steady,
        "start_s": start_ns * 1e-9 - begin_s,
        "wall_ms": steps.wall_s * 1e3,
        "samples": steps.samples,
    }
    for column, phase in enumerate(PHASES):
        table[f"{phase}_ms"] = steps.phase_s[:, column].astype(np.float64) * 1e3
    table["own_us"] = steps.own_s * 1e6
    table["batches_ready"] = steps.queue_depth
    return table | {name: counted(rank.recording, name) for name in _COUNTS}


def _device(rank: Rank) -> Table:
    recording = rank.recording
    number = recording.column("device", "index").astype(np.int64) + 1
    table: Table = {"rank": np.full(len(number), np.nan if rank.number is None else rank.number), "step": number}
    columns = (*(f"{name}_ms" for name in (*_DEVICE, "step")), "boundaries", "drained")
    return table | {name: np.asarray(recording.column("device", name), np.float64) for name in columns}


def _telemetry(run: StoredRun, source: str, begin_s: float) -> Table:
    rows = run.rows(source)
    if rows is None:
        return {}
    table: Table = {name: rows.column(name) for name in rows.columns}
    table["t_s"] = table["t_s"] - begin_s
    if "role" in table:
        roles = [ROLES[int(role)] if 0 <= role < len(ROLES) else "" for role in table["role"].tolist()]
        table["role"] = np.array(roles, object)
    return table


# A run as scalar curves: rates and phases over its steps, and what was sampled, at the step it was sampled in.


def make_scalars(run: StoredRun) -> tuple[Scalar, ...]:
    """Steps are the first rank's, and so is their time; samples are those of all ranks."""
    ranks = training_ranks(run)
    if not ranks:
        raise FlatoutError(f"run {run.id!r} has no training step, so it has no curves")
    found = _of_steps(ranks)
    if run.manifest.host in (None, ranks[0].host):
        sampled = (_at_steps(*curve, ranks[0]) for curve in sampled_curves(run, _CURVES))
        found += [scalar for scalar in sampled if scalar is not None]
    return tuple(found)


def _of_steps(ranks: tuple[Rank, ...]) -> list[Scalar]:
    steps = ranks[0].steps
    starts = bucket_starts(len(steps), MOST_POINTS)
    ends = np.append(starts[1:], len(steps)) - 1
    numbers = steps.index[ends].astype(np.int64) + 1
    unix_s = _unix_s(ranks[0], steps.start_ns[ends].astype(np.int64) * 1e-9)
    count, wall_s = np.add.reduceat(steps.count, starts), np.add.reduceat(steps.wall_s, starts)
    # A stretch of which no time was measured has no rate.
    wall_s = np.where(wall_s > 0, wall_s, np.nan)
    curves = {
        "steps_per_s": count / wall_s,
        "samples_per_s": _of_all(ranks) * np.add.reduceat(steps.samples, starts) / wall_s,
        "step_ms": 1e3 * wall_s / count,
        "longest_step_ms": 1e3 * np.maximum.reduceat(steps.wall_s / steps.count, starts),
        "batches_ready": np.add.reduceat(steps.queue_depth, starts) / np.diff(np.append(starts, len(steps))),
    }
    for column, phase in enumerate(PHASES):
        phase_s = np.add.reduceat(steps.phase_s[:, column].astype(np.float64), starts)
        if phase_s.any():
            curves[f"phase_ms/{phase}"] = 1e3 * phase_s / count
    scalars = (_scalar(name, numbers, unix_s, values) for name, values in curves.items())
    return [scalar for scalar in scalars if scalar is not None]


def _of_all(ranks: tuple[Rank, ...]) -> float:
    """How many samples all ranks take for one of the first."""
    rates = [rank.steady.samples_per_s for rank in ranks]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / known[0] if len(known) == len(rates) and known[0] > 0 else float(len(ranks))


def _at_steps(name: str, t_s: Floats, values: Floats, rank: Rank) -> Scalar | None:
    """Samples before the first step are at step 0, those after the last at the last."""
    known = np.isfinite(values)
    t_s, values = t_s[known], values[known]
    if not len(t_s):
        return None
    begun_s = rank.steps.start_ns.astype(np.float64) * 1e-9
    numbers = np.append(0, rank.steps.index.astype(np.int64) + 1)
    every = -(-len(t_s) // MOST_POINTS)
    at = numbers[np.searchsorted(begun_s, t_s, side="right")]
    return _scalar(name, at[::every], _unix_s(rank, t_s)[::every], values[::every])


def _scalar(name: str, steps: NDArray[np.int64], unix_s: Floats, values: Floats) -> Scalar | None:
    known = np.isfinite(values)
    if not known.any():
        return None
    return Scalar(
        f"flatout/{name}",
        tuple(steps[known].tolist()),
        tuple(unix_s[known].tolist()),
        tuple(np.asarray(values, np.float64)[known].tolist()),
    )


def _unix_s(rank: Rank, t_s: Floats) -> Floats:
    """Calendar time of moments by the monotonic clock of the rank's host."""
    ahead_s = (_ahead_ns(rank) or 0) * 1e-9
    return np.asarray(t_s + ahead_s)
