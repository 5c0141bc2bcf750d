"""Findings in source for machines: our own JSON, and GitHub's annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flatout.records.source import CheckReport, Place

SCHEMA = 1
_LEVELS = {"error": "error", "high": "error", "medium": "warning", "low": "notice"}


def to_json(report: CheckReport) -> str:
    """Schema 1, additive from here on."""
    findings = [
        {
            "code": one.code,
            "family": one.family,
            "title": one.title,
            "severity": one.severity,
            "location": _place(one.place),
            "cause": one.cause,
            "change": one.change,
            "related": [{"location": _place(other.place), "words": other.words} for other in one.related],
        }
        for one in report.findings
    ]
    whole = {"schema": SCHEMA, "files": report.files, "findings": findings, "trouble": list(report.trouble)}
    return json.dumps(whole, indent=1) + "\n"


def _place(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"file": place.file, "line": place.line, "column": place.column}
    if place.end_line:
        found |= {"end_line": place.end_line, "end_column": place.end_column}
    if place.cell is not None:
        found["cell"] = place.cell
    return found


def github(report: CheckReport) -> str:
    """Workflow commands: GitHub shows each at its line of a pull request."""
    return "".join(_commands(report))


def _commands(report: CheckReport) -> Iterator[str]:
    for one in report.findings:
        place = one.place
        facts = {"file": place.file, "line": place.line, "col": place.column, "title": f"{one.code} {one.title}"}
        if place.end_line:
            facts |= {"endLine": place.end_line}
        words = one.cause if one.change is None else f"{one.cause}\nhelp: {one.change}"
        given = ",".join(f"{key}={_escaped(str(value), in_value=True)}" for key, value in facts.items())
        yield f"::{_LEVELS[one.severity]} {given}::{_escaped(words)}\n"


def _escaped(words: str, in_value: bool = False) -> str:
    words = words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return words.replace(":", "%3A").replace(",", "%2C") if in_value else words
