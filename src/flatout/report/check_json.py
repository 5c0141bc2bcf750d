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
            "code": finding.code,
            "family": finding.family,
            "title": finding.title,
            "severity": finding.severity,
            "location": _place(finding.place),
            "cause": finding.cause,
            "change": finding.change,
            "related": [{"location": _place(other.place), "words": other.words} for other in finding.related],
            "fix": _fix(finding.fix),
            **({} if report.run is None else {"measured": measured_to_dict(finding.measured)}),
        }
        for finding in report.findings
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
    edits = [{"location": _place(edit.place), "text": edit.text} for edit in fix.edits]
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
    for finding in report.findings:
        place = finding.place
        facts = {
            "file": place.file,
            "line": place.line,
            "col": place.column,
            "title": f"{finding.code} {finding.title}",
        }
        if place.end_line:
            facts |= {"endLine": place.end_line}
        words = (
            english(finding.cause)
            if finding.change is None
            else f"{english(finding.cause)}\nhelp: {english(finding.change)}"
        )
        if finding.measured is not None and report.run is not None:
            words += f"\nmeasured: {measured_in_words(finding.measured, report.run)}"
        given = ",".join(f"{key}={_escaped(str(value), in_value=True)}" for key, value in facts.items())
        yield f"::{_LEVELS[finding.severity]} {given}::{_escaped(words)}\n"


def _escaped(words: str, in_value: bool = False) -> str:
    words = words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return words.replace(":", "%3A").replace(",", "%2C") if in_value else words
