"""Which lines of the user's code the time of a phase went to, from the line sampler's totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.diagnose.ranks import Rank
from flatout.records.report import LineCost, Location, PhaseShare
from flatout.store.recording import Recording

_SHOWN = 10

Place = tuple[str, int, str]


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


def looks(ranks: Sequence[Rank]) -> float:
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
