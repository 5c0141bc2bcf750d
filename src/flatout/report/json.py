"""A report as JSON (schema 1): the agreed keys first and in their order, later additions after them."""

from __future__ import annotations

from typing import Any

from flatout.errors import FlatoutError
from flatout.records.report import SCHEMA, RunReport
from flatout.report.next_command import next_command
from flatout.words.codec import decode, encode

_FIRST = ("schema", "run", "throughput", "phases", "gpu", "verdict", "findings", "overhead")


def to_json(report: RunReport) -> dict[str, Any]:
    """The report as a JSON value. What is not measured is null; NaN never appears."""
    value = encode(report) | {"next": next_command(report)}
    return {name: value[name] for name in (*_FIRST, *(name for name in value if name not in _FIRST))}


def from_json(value: dict[str, Any]) -> RunReport:
    """The report that `to_json` wrote, also one written by an older or newer flatout of the same schema."""
    if value.get("schema") != SCHEMA:
        found = value.get("schema")
        raise FlatoutError(f"the report has schema {found!r}, this flatout reads {SCHEMA}: use the one that wrote it")
    return decode(RunReport, value, strict=False)
