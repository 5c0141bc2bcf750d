"""Call sites: where the host waits for the device, copies to it, writes checkpoints, logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flatout.diagnose.ranks import Rank
from flatout.records.report import CopySite, Location, PauseSite, SyncSite

_COPY = "h2d"
_HIDDEN = "hidden"
_PAUSES = ("checkpoint", "logging", "eval")
_FIELDS = ("count", "ns", "max_ns", "bytes", "pinned", "non_blocking", "window_steps")

_Key = tuple[str, int, str, str]


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
