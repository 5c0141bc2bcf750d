"""Call sites: where the host waits for the device, copies to it, writes checkpoints, logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.message import Message, from_plain, message
from flatout.records.report import CopySite, LineCost, Location, PauseSite, PhaseShare, StageCost, SyncSite
from flatout.store.recording import Recording

_COPY = "h2d"
_HIDDEN = "hidden"
_PAUSES = ("checkpoint", "logging", "eval")
_FIELDS = ("count", "ns", "max_ns", "bytes", "pinned", "non_blocking", "window_steps")
_Key = tuple[str, int, str, str]
_SHOWN = 10
Place = tuple[str, int, str]
# A mean over fewer steps tells little.
_FEWEST_SAMPLES = 2
# Where the stages' figures come to more than the step, their share of it is all there is.
_MOST_SHARE = 0.99


@dataclass(slots=True)
class _Totals:
    """Sums over ranks of one site; `max_ns` is the largest."""

    steps: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_FIELDS, 0.0))


@dataclass(frozen=True, slots=True)
class Sites:
    syncs: tuple[SyncSite, ...]
    copies: tuple[CopySite, ...]
    pauses: tuple[PauseSite, ...]


def call_sites(ranks: Sequence[Rank]) -> Sites:
    """All call sites of the run, per step of a rank, the dearest first."""
    syncs, copies, pauses = [], [], []
    for (file, line, function, op), totals in _gather(ranks).items():
        where = Location(file, line)
        if op == _COPY:
            copies.append(_copy(where, function, totals))
        elif op in _PAUSES:
            pauses.append(_pause(where, function, op, totals))
        else:
            syncs.append(_sync(where, function, op, totals))
    return Sites(
        tuple(sorted(syncs, key=lambda site: (-(site.ms or 0.0), -site.per_step, *_where(site.location)))),
        tuple(sorted(copies, key=lambda site: (-site.ms, *_where(site.location)))),
        tuple(sorted(pauses, key=lambda site: (-site.total_s, *_where(site.location)))),
    )


def _where(location: Location) -> tuple[str, int]:
    return location.file, location.line


def _gather(ranks: Sequence[Rank]) -> dict[_Key, _Totals]:
    gathered: dict[_Key, _Totals] = {}
    for rank in ranks:
        recording = rank.recording
        places = {value["id"]: value for value in recording.values("site") if isinstance(value, dict) and "id" in value}
        # Running totals: the last record of a site counts.
        last = {int(site): row for row, site in enumerate(recording.column("site", "site").tolist())}
        columns = {name: np.nan_to_num(recording.column("site", name).astype(np.float64)) for name in _FIELDS}
        for site, row in last.items():
            if site not in places:
                continue
            totals = gathered.setdefault(_key(places[site]), _Totals())
            totals.steps += max(1, rank.steps.total)
            for name in _FIELDS:
                value = float(columns[name][row])
                totals.sums[name] = max(totals.sums[name], value) if name == "max_ns" else totals.sums[name] + value
    return gathered


def _key(place: dict[str, object]) -> _Key:
    line = place.get("line")
    number = line if isinstance(line, int) else 0
    return str(place.get("file", "")), number, str(place.get("function", "")), str(place.get("op", ""))


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
    seen: dict[tuple[Place, str], float] = defaultdict(float)
    in_phase: dict[str, float] = defaultdict(float)
    for rank in ranks:
        if rank.lines is None:
            continue
        for (place, phase), weight in line_totals(rank.lines).items():
            in_phase[phase] += weight
            if place is not None:
                seen[place, phase] += weight
    costs = []
    for (place, phase), weight in seen.items():
        if phase in phases and in_phase[phase] > 0:
            part = weight / in_phase[phase]
            file, line, function = place
            share = phases[phase].share * part
            costs.append(LineCost(Location(file, line), function, phase, share, phases[phase].ms * part))
    costs.sort(key=lambda cost: (-cost.share, cost.location.file, cost.location.line, cost.phase))
    return tuple(cost for cost in costs[:most] if cost.share > 0)


def line_samples(ranks: Sequence[Rank]) -> float:
    """How often the line sampler looked at the training threads; only looks that found a line count."""
    total = 0.0
    for rank in ranks:
        if rank.lines is not None:
            columns = [rank.lines.column("line", name).tolist() for name in ("line", "phase", "samples")]
            total += sum({(line, phase): samples for line, phase, samples in zip(*columns, strict=True)}.values())
    return total


def line_totals(recording: Recording) -> dict[tuple[Place | None, str], float]:
    """Seconds by place and phase. A total may have been written several times: the last counts."""
    places = {value.get("id"): _place(value) for value in recording.values("line") if isinstance(value, dict)}
    last: dict[tuple[int, int], float] = {}
    columns = [recording.column("line", name).tolist() for name in ("line", "phase", "seconds", "samples")]
    for line, phase, seconds, samples in zip(*columns, strict=True):
        last[int(line), int(phase)] = seconds if seconds > 0 else samples
    totals: dict[tuple[Place | None, str], float] = defaultdict(float)
    for (line, phase), weight in last.items():
        if phase < len(recording.phases):
            totals[places.get(line), recording.phases[phase]] += weight
    return totals


def _place(value: Mapping[str, Any]) -> Place:
    return str(value.get("file", "")), int(value.get("line", 0)), str(value.get("function", ""))


# What each stage of the model takes of a step, from the sampled steps of the first rank that has them.


def stage_costs(ranks: Sequence[Rank], step_ms: float | None) -> tuple[StageCost, ...] | None:
    """None where nobody asked for them, or nothing could be measured."""
    for rank in ranks:
        told = _last_told(rank.recording)
        if told is not None and rank.recording.count("stage"):
            costs = tuple(_costs(rank, told["stages"], step_ms))
            if costs:
                return costs
    return None


def stage_notices(ranks: Sequence[Rank]) -> tuple[Message, ...]:
    """What is not in the table of stages, and why."""
    lines: list[Message] = []
    for rank in ranks[:1]:
        told = _last_told(rank.recording) or {}
        left_out = sorted(told.get("left_out", {}).items())
        lines += [message("run.stage_left_out", stage=name, why=from_plain(why)) for name, why in left_out]
        is_begun = bool(rank.recording.count("stage"))
        lines += [
            message("run.stages_stopped" if is_begun else "run.stages_not_measured", why=from_plain(why))
            for why in rank.recording.values("stages_stopped")
        ]
    return tuple(dict.fromkeys(lines))


def _last_told(recording: Recording) -> dict[str, Any] | None:
    """The stages as they were in the end: a large one may have been divided after the first samples."""
    told = [value for value in recording.values("stages") if isinstance(value, dict)]
    return told[-1] if told else None


def _costs(rank: Rank, stages: Sequence[dict[str, Any]], step_ms: float | None) -> Iterator[StageCost]:
    recording = rank.recording
    columns = {name: recording.column("stage", name) for name in ("index", "stage", "calls")}
    forward = np.asarray(recording.column("stage", "forward_ms"), np.float64)
    backward = np.asarray(recording.column("stage", "backward_ms"), np.float64)
    steady = columns["index"] >= _first_steady(rank)
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


def _first_steady(rank: Rank) -> int:
    if not len(rank.steady):
        return 0
    return int(rank.steady.index[0]) - int(rank.steady.count[0]) + 1
