"""A report as JSON (schema 1), and reports, fixes and trials read again, also those of an older or newer flatout."""

from __future__ import annotations

from typing import Any

from flatout.errors import FlatoutError
from flatout.records.fix import SCHEMA as FIX_SCHEMA
from flatout.records.fix import Fix
from flatout.records.report import SCHEMA, RunReport
from flatout.records.trial import Trial
from flatout.report.overview import next_command
from flatout.words.codec import decode, encode

_FIRST = ("schema", "run", "throughput", "phases", "gpu", "verdict", "findings", "overhead")


def to_json(report: RunReport) -> dict[str, Any]:
    """The agreed keys first and in their order, later additions after them. What is not measured is null."""
    value = encode(report) | {"next": next_command(report)}
    return {name: value[name] for name in (*_FIRST, *(name for name in value if name not in _FIRST))}


def from_json(value: dict[str, Any]) -> RunReport:
    """The report that `to_json` wrote, also one written by an older or newer flatout of the same schema."""
    _check_schema("report", value, SCHEMA)
    return decode(RunReport, value, strict=False)


# What a report needs of a trial; the states of its remedies are left out.
_OF_TRIAL = ("arm", "remedies", "ending", "why", "run", "wall_s", "step_s", "samples", "losses")


def fix_from_json(value: dict[str, Any]) -> Fix:
    """The fix that `report.fix.to_json` wrote."""
    _check_schema("fix", value, FIX_SCHEMA)
    try:
        return decode(Fix, value)
    except TypeError as error:
        raise FlatoutError(f"the record of the fix lacks what it needs ({error}); make it again") from error


def _check_schema(what: str, value: dict[str, Any], reads: int) -> None:
    if (found := value.get("schema")) != reads:
        raise FlatoutError(f"the {what} has schema {found!r}, this flatout reads {reads}: use the one that wrote it")


def trial_from_json(value: dict[str, Any]) -> Trial:
    return decode(Trial, {name: item for name, item in value.items() if name in (*_OF_TRIAL, "facts")})
