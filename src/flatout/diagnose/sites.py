"""Call sites: where the host waits for the device, copies to it, writes checkpoints, logs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flatout.diagnose.ranks import Rank, call_sites_of, told
from flatout.records.ledger import IN_MODULE, NATURES, ON_GRADIENTS, CallPath, LedgerEntry, Nature
from flatout.records.message import Message, from_plain, message
from flatout.records.report import CopySite, LineCost, Location, PauseSite, PhaseShare, StageCost, SyncSite
from flatout.store.recording import Recording

_COPY = "h2d"
_HIDDEN = "hidden"
_PAUSES = ("checkpoint", "logging", "eval")
_FIELDS = ("count", "ns", "max_ns", "bytes", "pinned", "non_blocking", "window_steps")
_COUNT, _LONGEST, _WINDOW = (_FIELDS.index(name) for name in ("count", "max_ns", "window_steps"))
_SHOWN = 10
Place = tuple[str, int, str]
# A mean over fewer steps tells little.
_FEWEST_SAMPLES = 2
# The same for windows in which hidden syncs were looked for.
_FEWEST_WINDOWS = 2
# Where the stages' figures come to more than the step, their share of it is all there is.
_MOST_SHARE = 0.99


@dataclass(slots=True)
class _Totals:
    """Sums over ranks of one site; `max_ns` is the largest."""

    steps: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_FIELDS, 0.0))


def call_sites(ranks: Sequence[Rank]) -> tuple[tuple[SyncSite, ...], tuple[CopySite, ...], tuple[PauseSite, ...]]:
    """All call sites of the run, per step of a rank, the dearest first."""
    syncs, copies, pauses = [], [], []
    for (where, function, op), totals in _gather(ranks).items():
        if op == _COPY:
            copies.append(_copy(where, function, totals))
        elif op in _PAUSES:
            pauses.append(_pause(where, function, op, totals))
        else:
            syncs.append(_sync(where, function, op, totals))
    return (
        tuple(sorted(syncs, key=lambda site: (-(site.ms or 0.0), -site.per_step, *_where(site.location)))),
        tuple(sorted(copies, key=lambda site: (-site.ms, *_where(site.location)))),
        tuple(sorted(pauses, key=lambda site: (-site.total_s, *_where(site.location)))),
    )


def _where(location: Location) -> tuple[str, int]:
    return location.file, location.line


def _gather(ranks: Sequence[Rank]) -> dict[tuple[Location, str, str], _Totals]:
    gathered: dict[tuple[Location, str, str], _Totals] = defaultdict(_Totals)
    for rank in ranks:
        recording = rank.recording
        places = call_sites_of(recording)
        columns = {name: np.nan_to_num(recording.column("site", name).astype(np.float64)) for name in _FIELDS}
        table = np.stack([columns[name] for name in _FIELDS], axis=1)
        # Running totals: of a site the last record of each slice counts.
        by_slice: dict[int, dict[int, NDArray[np.float64]]] = defaultdict(dict)
        numbers, began = recording.column("site", "site"), np.nan_to_num(recording.column("site", "slice"))
        for site, begin, sums in zip(numbers.tolist(), began.tolist(), table, strict=True):
            by_slice[int(site)][int(begin)] = sums
        counted = steady_slices(rank, began)
        for site, totals in by_slice.items():
            if site not in places:
                continue
            key = places[site]
            sums, steps = list(totals.values())[-1], rank.steps.total
            if counted is not None and key[-1] not in _PAUSES:
                sums, steps = _of_slices(totals, counted), sum(end - begin for begin, end in counted)
            # What was only done in warm-up, as compiling does, is no site of the steady part.
            if sums[_COUNT]:
                _add(gathered[key], sums, max(1, steps))
    return gathered


def _of_slices(totals: Mapping[int, NDArray[np.float64]], counted: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """What was added in these slices; all there is where hidden syncs were hardly looked for in them."""
    begins, last = {begin for begin, _ in counted}, np.zeros(len(_FIELDS))
    added = np.zeros(len(_FIELDS))
    for begin, sums in totals.items():
        if begin in begins:
            added += sums - last
        last = sums
    if last[_WINDOW] and added[_WINDOW] < _FEWEST_WINDOWS:
        return last
    added[_LONGEST] = last[_LONGEST]
    return added


def _add(totals: _Totals, sums: NDArray[np.float64], steps: int) -> None:
    totals.steps += steps
    for name, value in zip(_FIELDS, sums.tolist(), strict=True):
        totals.sums[name] = max(totals.sums[name], value) if name == "max_ns" else totals.sums[name] + value


def steady_slices(rank: Rank, began: NDArray[Any]) -> list[tuple[int, int]] | None:
    """Of the slices that a process divided its run into, those with steady steps only: first step, and the next's.

    Where they are few, those since the steady part began; None where all of the run tells more.
    """
    if rank.is_steady.all():
        return None
    total, first = rank.steps.total, rank.first_steady
    begins = sorted({int(begin) for begin in began.tolist()})
    since = [(begin, end) for begin, end in pairwise([*begins, total]) if first <= begin < end]
    others = rank.steps.index[~rank.is_steady]
    clean = [(begin, end) for begin, end in since if not ((begin <= others) & (others < end)).any()]
    for chosen in (clean, since):
        if 2 * sum(end - begin for begin, end in chosen) >= rank.steady.total:
            return chosen
    return None


def _sync(where: Location, function: str, op: str, totals: _Totals) -> SyncSite:
    window = totals.sums["window_steps"]
    if op == _HIDDEN or window:
        # Seen only in sampled windows, where its duration is not measured.
        return SyncSite(where, function, op, totals.sums["count"] / max(1.0, window), None)
    return SyncSite(where, function, op, totals.sums["count"] / totals.steps, totals.sums["ns"] * 1e-6 / totals.steps)


def _copy(where: Location, function: str, totals: _Totals) -> CopySite:
    sums, calls = totals.sums, max(1.0, totals.sums["count"])
    return CopySite(
        where,
        function,
        per_step=sums["count"] / totals.steps,
        ms=sums["ns"] * 1e-6 / totals.steps,
        bytes_per_step=sums["bytes"] / totals.steps,
        pinned_share=sums["pinned"] / calls,
        non_blocking_share=sums["non_blocking"] / calls,
    )


def _pause(where: Location, function: str, op: str, totals: _Totals) -> PauseSite:
    sums = totals.sums
    return PauseSite(where, function, op, int(sums["count"]), sums["ns"] * 1e-9, sums["max_ns"] * 1e-9)


# Which lines of the user's code the time of a phase went to, from the line sampler's totals.


def slowest_lines(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare], most: int = _SHOWN) -> tuple[LineCost, ...]:
    """A line's share is its phase's share of the step times its part of that phase's samples."""
    costs: dict[tuple[Location, str, str], LineCost] = {}
    for entry in ledger_entries(ranks, phases):
        key = entry.location, entry.function, entry.phase
        known = costs.get(key)
        share, ms = (known.share, known.ms) if known is not None else (0.0, 0.0)
        costs[key] = LineCost(*key, share + entry.share, ms + entry.ms)
    ranked = sorted(costs.values(), key=lambda cost: (-cost.share, *_where(cost.location), cost.phase))
    return tuple(cost for cost in ranked[:most] if cost.share > 0)


def ledger_entries(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[LedgerEntry, ...]:
    """Where the time of each phase went, by line and nature; the entries of a phase that was sampled add up to it."""
    seen: dict[tuple[Place, str, LineState], float] = defaultdict(float)
    looks: dict[tuple[Place, str, LineState], float] = defaultdict(float)
    in_phase: dict[str, float] = defaultdict(float)
    for rank in ranks:
        if rank.lines is None:
            continue
        for (place, phase, state), (weight, count) in line_totals(rank.lines, _steady_time(rank)).items():
            in_phase[phase] += weight
            if place is not None:
                seen[place, phase, state] += weight
                looks[place, phase, state] += count
    entries = []
    for key, weight in seen.items():
        (file, line, function), phase, state = key
        if phase in phases and in_phase[phase] > 0 and weight > 0:
            part = weight / in_phase[phase]
            entries.append(
                LedgerEntry(
                    location=Location(file, line),
                    function=function,
                    phase=phase,
                    nature=state.nature,
                    in_module=state.in_module,
                    ms=phases[phase].ms * part,
                    share=phases[phase].share * part,
                    looks=looks[key],
                    on_gradients=state.on_gradients,
                )
            )
    return tuple(sorted(entries, key=lambda entry: (-entry.share, *_where(entry.location), entry.phase)))


def line_samples(ranks: Sequence[Rank]) -> float:
    """How often the line sampler looked at the training threads; only looks that found a line count."""
    return sum(
        row["samples"] for rank in ranks if rank.lines is not None for row in _line_rows(rank.lines, _steady_time(rank))
    )


LineTotals = dict[tuple[Place | None, str, "LineState"], tuple[float, float]]


class SteadyTime(NamedTuple):
    """When the steady part began, and the steps since then that do not count: from, to."""

    begin_ns: float = 0.0
    left_out_ns: Sequence[tuple[float, float]] = ()


ALL_OF_IT = SteadyTime()


def line_totals(recording: Recording, steady: SteadyTime = ALL_OF_IT) -> LineTotals:
    """Seconds and looks by place, phase and state, of the slices of time in the steady part."""
    places = _places(recording)
    totals: LineTotals = {}
    for row in _line_rows(recording, steady):
        phase = int(row["phase"])
        if phase < len(recording.phases):
            key = places.get(int(row["line"])), recording.phases[phase], _state(row)
            seconds, looks = totals.get(key, (0.0, 0.0))
            weight = row["seconds"] if row["seconds"] > 0 else row["samples"]
            totals[key] = seconds + weight, looks + row["samples"]
    return totals


def _places(recording: Recording) -> dict[Any, Place]:
    return {
        line.get("id"): (str(line.get("file", "")), int(line.get("line", 0)), str(line.get("function", "")))
        for line in told(recording, "line")
    }


def lines_by_slice(rank: Rank, phases: Sequence[str]) -> dict[float, dict[Place, float]]:
    """Seconds at each line in these phases, by when the slice of steady time began; empty where nobody looked."""
    recording = rank.lines
    if recording is None:
        return {}
    places = _places(recording)
    numbers = {recording.phases.index(phase) for phase in phases if phase in recording.phases}
    slices: dict[float, dict[Place, float]] = defaultdict(lambda: defaultdict(float))
    for row in _line_rows(recording, _steady_time(rank)):
        place = places.get(int(row["line"]))
        if place is not None and row["phase"] in numbers:
            slices[row["since_ns"]][place] += row["seconds"]
    return slices


def call_paths(ranks: Sequence[Rank], phases: Mapping[str, PhaseShare]) -> tuple[CallPath, ...]:
    """The calls that led to where the training threads were seen, the dearest first; each phase's come to that phase.

    What is left over is of paths that were too many to be told apart.
    """
    seen: dict[tuple[tuple[Place, ...], str], tuple[float, float]] = {}
    in_phase: dict[str, float] = defaultdict(float)
    for rank in ranks:
        recording = rank.lines
        if recording is None:
            continue
        rows = _line_rows(recording, _steady_time(rank))
        for row in rows:
            in_phase[recording.phases[int(row["phase"])]] += row["seconds"]
        steady, places = {row["since_ns"] for row in rows}, _places(recording)
        for slice_ in told(recording, "paths"):
            for numbers, phase, seconds, looks in slice_["paths"] if slice_["since_ns"] in steady else ():
                key = tuple(places[number] for number in numbers if number in places), recording.phases[phase]
                before = seen.get(key, (0.0, 0.0))
                seen[key] = before[0] + seconds, before[1] + looks
    found = (
        CallPath(
            lines=tuple(Location(file, line) for file, line, _ in path),
            functions=tuple(function for _, _, function in path),
            phase=phase,
            ms=phases[phase].ms * seconds / in_phase[phase],
            looks=looks,
        )
        for (path, phase), (seconds, looks) in seen.items()
        if phase in phases and in_phase[phase] > 0
    )
    return tuple(sorted(found, key=lambda path: -path.ms))


class LineState(NamedTuple):
    """What the thread did at a line, and whether a module of the model was being called."""

    nature: Nature
    in_module: bool
    # In a function of torch's that clips, scales, averages or applies gradients.
    on_gradients: bool


def _state(row: Mapping[str, float]) -> LineState:
    number = row["nature"]
    nature = NATURES[int(number)] if 0 <= number < len(NATURES) else "unknown"
    return LineState(nature, row["in_module"] == IN_MODULE, row["in_module"] == ON_GRADIENTS)


_LINE_FIELDS = ("line", "phase", "samples", "seconds", "nature", "in_module", "since_ns")


def _line_rows(recording: Recording, steady: SteadyTime) -> list[dict[str, float]]:
    """Running totals, the last of each; of slices that are not steady only where they are needed."""
    columns = [np.nan_to_num(recording.column("line", name).astype(np.float64), nan=-1.0) for name in _LINE_FIELDS]
    last: dict[tuple[float, ...], dict[str, float]] = {}
    for values in zip(*(column.tolist() for column in columns), strict=True):
        row = dict(zip(_LINE_FIELDS, values, strict=True))
        last[row["line"], row["phase"], row["nature"], row["in_module"], row["since_ns"]] = row
    counted = _steady_slices(sorted({row["since_ns"] for row in last.values()}), steady)
    return [row for row in last.values() if row["since_ns"] in counted]


def _steady_slices(begins: Sequence[float], steady: SteadyTime) -> set[float]:
    """Those that count, by when they began: without steps that do not, unless that leaves less than half of them."""
    first = _first_slice(begins, steady.begin_ns)
    since = [begin for begin in begins if begin >= first]
    if not since:
        return set()
    clean = {
        begin
        for begin, end in zip(since, [*since[1:], math.inf], strict=True)
        if not any(start < end and stop > begin for start, stop in steady.left_out_ns)
    }
    return clean if 2 * len(clean) >= len(since) else set(since)


def _first_slice(begins: Sequence[float], begin_ns: float) -> float:
    """When the first slice began that counts: at `begin_ns` or after, or around it, where too little is left after it.

    The first slice of all holds the first step and what came before it: it counts only where there is no other.
    """
    if len(begins) < 2:
        return begins[0] if begins else 0.0
    after = [begin for begin in begins if begin >= begin_ns]
    if len(after) >= len(begins) // 2:
        return after[0]
    around = [begin for begin in begins[1:] if begin <= begin_ns]
    return around[-1] if around else begins[1]


def _steady_time(rank: Rank) -> SteadyTime:
    if not len(rank.steady):
        return SteadyTime()
    begin_ns = float(rank.steady.start_ns[0])
    start_ns = rank.steps.start_ns.astype(np.float64)
    again = np.flatnonzero(~rank.is_steady & (start_ns > begin_ns))
    ends_ns = start_ns[again] + 1e9 * rank.steps.wall_s[again]
    return SteadyTime(begin_ns, tuple(zip(start_ns[again].tolist(), ends_ns.tolist(), strict=True)))


# What each stage of the model takes of a step, from the sampled steps of the first rank that has them.


def stage_costs(ranks: Sequence[Rank], step_ms: float | None) -> tuple[StageCost, ...] | None:
    """None where nobody asked for them, or nothing could be measured."""
    for rank in ranks:
        last = _last_told(rank.recording)
        if last is not None and rank.recording.count("stage"):
            costs = tuple(_costs(rank, last["stages"], step_ms))
            if costs:
                return costs
    return None


def stage_notices(ranks: Sequence[Rank]) -> tuple[Message, ...]:
    """What is not in the table of stages, and why."""
    lines: list[Message] = []
    for rank in ranks[:1]:
        last = _last_told(rank.recording) or {}
        left_out = sorted(last.get("left_out", {}).items())
        lines += [message("run.stage_left_out", stage=name, why=from_plain(why)) for name, why in left_out]
        is_begun = bool(rank.recording.count("stage"))
        lines += [
            message("run.stages_stopped" if is_begun else "run.stages_not_measured", why=from_plain(why))
            for why in rank.recording.values("stages_stopped")
        ]
    return tuple(dict.fromkeys(lines))


def _last_told(recording: Recording) -> dict[str, Any] | None:
    """The stages as they were in the end: a large one may have been divided after the first samples."""
    stages = told(recording, "stages")
    return stages[-1] if stages else None


def _costs(rank: Rank, stages: Sequence[dict[str, Any]], step_ms: float | None) -> Iterator[StageCost]:
    recording = rank.recording
    columns = {name: recording.column("stage", name) for name in ("index", "stage", "calls")}
    forward = np.asarray(recording.column("stage", "forward_ms"), np.float64)
    backward = np.asarray(recording.column("stage", "backward_ms"), np.float64)
    steady = columns["index"] >= rank.first_steady
    for stage in stages:
        of_stage = (columns["stage"] == stage["id"]) & np.isfinite(forward)
        # A run so short that no sample fell into its steady part has at least these.
        chosen = of_stage & steady if (of_stage & steady).sum() >= _FEWEST_SAMPLES else of_stage
        if chosen.sum() < _FEWEST_SAMPLES:
            continue
        seen = backward[chosen][np.isfinite(backward[chosen])]
        forward_ms, backward_ms = float(forward[chosen].mean()), float(seen.mean()) if len(seen) else None
        ms = forward_ms + (backward_ms or 0.0)
        share = min(_MOST_SHARE, ms / step_ms) if step_ms else None
        yield StageCost(
            name=str(stage["name"]),
            module=str(stage["module"]),
            parameters=int(stage["parameters"]),
            forward_ms=forward_ms,
            backward_ms=backward_ms,
            share=share,
            if_free=None if share is None else 1 / (1 - share),
            if_twice=None if share is None else 1 / (1 - share / 2),
            calls_per_step=float(columns["calls"][chosen].mean()),
            samples=int(chosen.sum()),
        )
