"""Some steps of a run as tracks: which steps, what each process did in them, and what was sampled meanwhile.

A step's recording holds how long each phase took in it, not when: its phases are laid out in their usual order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flatout.diagnose.ranks import Floats, Rank, Steps, training_ranks
from flatout.diagnose.resources import totals
from flatout.errors import FlatoutError
from flatout.records.export import Counter, Slice, Trace, TracedProcess, Track
from flatout.records.report import PHASES
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
# Counters of the machine: source, column, name, factor, and whether rows of one moment add up.
_COUNTERS = (
    ("gpu", "util_percent", "GPU {gpu} utilisation (%)", 1.0),
    ("gpu", "power_w", "GPU {gpu} power (W)", 1.0),
    ("gpu", "memory_used_bytes", "GPU {gpu} memory (GiB)", 2.0**-30),
    ("gpu", "sm_active_share", "GPU {gpu} SM active (%)", 100.0),
)
_SUMMED = (
    ("processes", "cpu_share", "CPU of the run (cores)", 1.0),
    ("processes", "rss_bytes", "memory of the run, shared pages counted each time (GiB)", 2.0**-30),
    ("host", "memory_available_bytes", "memory available (GiB)", 2.0**-30),
    ("processes", "read_bytes_per_s", "read from storage (MB/s)", 1e-6),
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
    drawn = len(ranks) * sum(int(_picked(ranks[0].steps, window).sum()) for window in windows)
    if drawn > MOST_STEPS:
        raise FlatoutError(f"--steps {steps}: {drawn:,} steps of all ranks are too many, at most {MOST_STEPS:,}")
    zero_ns = min(window.start_ns for window in windows)
    processes = [_trained(rank, windows, zero_ns, offset_ns(rank, ranks[0])) for rank in ranks]
    processes += _workers(run, ranks, windows, zero_ns)
    # Samples were taken where the run was started, and by that host's clock.
    is_here = run.manifest.host in (None, ranks[0].host)
    machine = TracedProcess("machine", 0, (), tuple(_sampled(run, windows, zero_ns)) if is_here else ())
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


def _picked(steps: Steps, window: _Window) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return _inside(steps, window.first, window.last)


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
    pick = np.zeros(len(steps), bool)
    for window in windows:
        pick |= _picked(steps, window)
    rows = np.flatnonzero(pick)
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
    places = {value.get("id"): value for value in recording.values("site") if isinstance(value, dict)}
    names = recording.phases
    pauses: list[Slice] = []
    for row in _within(recording, "span", windows, ahead_ns):
        span = recording.records["span"][row]
        place = places.get(int(span["site"]), {})
        facts = {"at": f"{place['file']}:{place['line']}"} if place.get("file") else {}
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
    pick = np.zeros(len(start), bool)
    for window in windows:
        pick |= (end >= window.start_ns) & (start <= window.end_ns)
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


def _sampled(run: StoredRun, windows: Sequence[_Window], zero_ns: int) -> Iterable[Counter]:
    for source, column, name, factor in _COUNTERS:
        rows = run.rows(source)
        if rows is None or not len(rows.values):
            continue
        gpu = rows.column("gpu")
        for number in np.unique(gpu[np.isfinite(gpu)]).tolist():
            mine = gpu == number
            t_s, values = rows.column("t_s")[mine], rows.column(column)[mine] * factor
            yield from _meanwhile(name.format(gpu=int(number)), t_s, values, windows, zero_ns)
    for source, column, name, factor in _SUMMED:
        rows = run.rows(source)
        if rows is not None and len(rows.values):
            t_s, values = totals(rows.column("t_s"), rows.column(column))
            yield from _meanwhile(name, t_s, values * factor, windows, zero_ns)


def _meanwhile(name: str, t_s: Floats, values: Floats, windows: Sequence[_Window], zero_ns: int) -> Iterable[Counter]:
    pick = np.zeros(len(t_s), bool)
    for window in windows:
        pick |= (t_s >= window.start_ns * 1e-9 - _MARGIN_S) & (t_s <= window.end_ns * 1e-9 + _MARGIN_S)
    counter = _counter(name, t_s[pick] * 1e6 - zero_ns / 1e3, values[pick])
    if counter is not None:
        yield counter


def _counter(name: str, t_us: Floats, values: Floats) -> Counter | None:
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    if not known.any():
        return None
    every = -(-int(known.sum()) // _MOST_POINTS)
    return Counter(name, tuple(t_us[known][::every].tolist()), tuple(values[known][::every].tolist()))
