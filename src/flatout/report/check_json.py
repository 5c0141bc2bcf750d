"""Findings in source for machines: our own JSON, and GitHub's annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flatout.records.source import CheckReport, Fix, Place
from flatout.report.check import measured_in_words, measured_run_to_dict, measured_to_dict
from flatout.words import english
from flatout.words.codec import encode

SCHEMA = 1
_LEVELS = {"error": "error", "high": "error", "medium": "warning", "low": "notice", "hint": "notice"}


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
            "fix": _fix(one.fix),
            **({} if report.run is None else {"measured": measured_to_dict(one.measured)}),
        }
        for one in report.findings
    ]
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "files": report.files,
        "findings": findings,
        "trouble": list(report.trouble),
    }
    if report.fixed:
        whole["fixed"] = {"findings": report.fixed, "files": report.fixed_files}
    if report.run is not None:
        whole |= {"run": measured_run_to_dict(report.run), "notices": list(report.notices)}
    return json.dumps(encode(whole), indent=1) + "\n"


def _fix(fix: Fix | None) -> dict[str, Any] | None:
    """An edit without an end in its place is put in there."""
    if fix is None:
        return None
    edits = [{"location": _place(one.place), "text": one.text} for one in fix.edits]
    return {"safe": fix.is_safe, "words": fix.words, "edits": edits}


def _place(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"file": place.file, "line": place.line, "column": place.column}
    if place.end_column:
        found |= {"end_line": place.end_line, "end_column": place.end_column}
    if place.cell is not None:
        found["cell"] = place.cell
    return found


def render_github(report: CheckReport) -> str:
    """Workflow commands: GitHub shows each at its line of a pull request."""
    return "".join(_commands(report))


def _commands(report: CheckReport) -> Iterator[str]:
    for one in report.findings:
        place = one.place
        facts = {"file": place.file, "line": place.line, "col": place.column, "title": f"{one.code} {one.title}"}
        if place.end_line:
            facts |= {"endLine": place.end_line}
        words = english(one.cause) if one.change is None else f"{english(one.cause)}\nhelp: {english(one.change)}"
        if one.measured is not None and report.run is not None:
            words += f"\nmeasured: {measured_in_words(one.measured, report.run)}"
        given = ",".join(f"{key}={_escaped(str(value), in_value=True)}" for key, value in facts.items())
        yield f"::{_LEVELS[one.severity]} {given}::{_escaped(words)}\n"


def _escaped(words: str, in_value: bool = False) -> str:
    words = words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return words.replace(":", "%3A").replace(",", "%2C") if in_value else words
