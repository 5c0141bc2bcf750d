"""A report as JSON (schema 1): the agreed keys first and in their order, later additions after them."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from flatout.errors import FlatoutError
from flatout.records.report import (
    SCHEMA,
    CopySite,
    Cost,
    Finding,
    Gain,
    GpuUse,
    Grounds,
    HostUse,
    LineCost,
    Location,
    Overhead,
    PauseSite,
    PhaseShare,
    RankUse,
    RelatedLine,
    RunFacts,
    RunReport,
    Snippet,
    SourceSide,
    StageCost,
    SyncSite,
    Throughput,
    Unmeasured,
    Verdict,
    WorkerCost,
)
from flatout.report.next_command import next_command

_FIRST = ("schema", "run", "throughput", "phases", "gpu", "verdict", "findings", "overhead")


def to_json(report: RunReport) -> dict[str, Any]:
    """The report as a JSON value. What is not measured is null; NaN never appears."""
    value: dict[str, Any] = plain({**asdict(report), "next": next_command(report)})
    return {name: value[name] for name in (*_FIRST, *(name for name in value if name not in _FIRST))}


to_dict = to_json


def from_json(value: dict[str, Any]) -> RunReport:
    """The report that `to_json` wrote, also one written by an older or newer flatout of the same schema."""
    if value.get("schema") != SCHEMA:
        found = value.get("schema")
        raise FlatoutError(f"the report has schema {found!r}, this flatout reads {SCHEMA}: use the one that wrote it")
    rest = {name: value[name] for name in ("live", "environment", "warmup_steps") if name in value}
    return RunReport(
        run=_made(RunFacts, {**value["run"], "argv": tuple(value["run"]["argv"])}),
        throughput=_made(Throughput, value["throughput"]),
        phases={name: _made(PhaseShare, share) for name, share in value["phases"].items()},
        gpu=None if value["gpu"] is None else _made(GpuUse, value["gpu"]),
        verdict=verdict_from_json(value["verdict"]),
        findings=tuple(_finding(item) for item in value["findings"]),
        overhead=_made(Overhead, value["overhead"]),
        lines=_located(LineCost, value.get("lines", ())),
        worker_lines=_located(LineCost, value.get("worker_lines", ())),
        syncs=_located(SyncSite, value.get("syncs", ())),
        copies=_located(CopySite, value.get("copies", ())),
        pauses=_located(PauseSite, value.get("pauses", ())),
        host=None if value.get("host") is None else _made(HostUse, value["host"]),
        workers=tuple(_made(WorkerCost, item) for item in value.get("workers", ())),
        ranks=tuple(_made(RankUse, item) for item in value.get("ranks", ())),
        notices=tuple(value.get("notices", ())),
        stages=None if value.get("stages") is None else tuple(_made(StageCost, item) for item in value["stages"]),
        snippets=_located(Snippet, value.get("snippets", ())),
        source=None if value.get("source") is None else _source(value["source"]),
        **rest,
    )


def verdict_from_json(value: dict[str, Any]) -> Verdict:
    """Of a report or of a fix; older ones have a sentence only."""
    grounds = value.get("grounds")
    if grounds is not None:
        grounds = _made(Grounds, {**grounds, "costs": tuple(_made(Cost, one) for one in grounds["costs"])})
    made: Verdict = _made(Verdict, {**value, "grounds": grounds})
    return made


def plain(value: Any) -> Any:
    """What JSON can hold; a number that is not finite was not measured."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _made(kind: Any, value: dict[str, Any]) -> Any:
    """A record from its JSON; keys that a newer flatout added are left out."""
    return kind(**{name: item for name, item in value.items() if name in kind.__slots__})


def _located(kind: Any, items: Any) -> tuple[Any, ...]:
    return tuple(_made(kind, {**item, "location": _made(Location, item["location"])}) for item in items)


def _source(value: dict[str, Any]) -> SourceSide:
    made: SourceSide = _made(SourceSide, {**value, "not_measured": _located(Unmeasured, value["not_measured"])})
    return made


def _finding(item: dict[str, Any]) -> Finding:
    location, gain = item["location"], item["predicted_gain"]
    made: Finding = _made(
        Finding,
        {
            **item,
            "location": None if location is None else _made(Location, location),
            "predicted_gain": None if gain is None else _made(Gain, gain),
            "related": _located(RelatedLine, item.get("related", ())),
        },
    )
    return made
