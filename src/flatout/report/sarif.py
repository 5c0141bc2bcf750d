"""Findings in source and of runs as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from flatout.records.message import Message, verbatim
from flatout.records.report import Finding, Location, RunReport
from flatout.records.source import CheckReport, Edit, Fix, Place, Related, Severity, SourceFinding
from flatout.report.check import measured_to_dict
from flatout.words import english
from flatout.words.codec import FACTS, encode

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "high": "warning", "medium": "warning", "low": "note", "hint": "note"}


def check_sarif(report: CheckReport, version: str, texts: Mapping[str, str]) -> str:
    """`texts` holds the explanation of each code that was looked for."""
    return _document(report.findings, [{} for _ in report.findings], report.trouble, version, texts)


def run_sarif(report: RunReport, cwd: str, version: str, texts: Mapping[str, str]) -> str:
    """The findings of a run that have a place in the source; the others are told as notifications."""
    located = [finding for finding in report.findings if finding.location is not None]
    more = [{"properties": _of_run(finding, report.run.id)} for finding in located]
    elsewhere = [finding for finding in report.findings if finding.location is None]
    trouble = [
        verbatim(f"{finding.code} {finding.title}: {english(finding.cause)} (no place in the source)")
        for finding in elsewhere
    ]
    return _document([_as_source(finding, cwd) for finding in located], more, trouble, version, texts)


def _document(
    findings: Sequence[SourceFinding],
    more: Sequence[dict[str, Any]],
    trouble: Sequence[Message],
    version: str,
    texts: Mapping[str, str],
) -> str:
    """`more` is what to add to the result of each finding."""
    rules = list(dict.fromkeys(finding.code for finding in findings))
    driver = {
        "name": "flatout",
        "version": version,
        "rules": [_rule(code, findings, texts) for code in rules],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, rules.index(finding.code)) | extra for finding, extra in zip(findings, more, strict=True)
        ],
    }
    if trouble:
        notes = [{"level": "warning", "message": {"text": english(line)}} for line in trouble]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": notes}]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _as_source(finding: Finding, cwd: str) -> SourceFinding:
    assert finding.location is not None
    related = tuple(Related(_place(other.location, cwd), other.words) for other in finding.related)
    place = _place(finding.location, cwd)
    severity: Severity = finding.severity if finding.severity in _LEVELS else "medium"  # type: ignore[assignment]
    return SourceFinding(
        finding.code, finding.family, finding.title, severity, place, finding.cause, finding.change, related
    )


def _place(location: Location, cwd: str) -> Place:
    """Relative to where the run was started, as services expect it, if it lies below."""
    path = PurePath(location.file)
    file = path.relative_to(cwd) if cwd and path.is_relative_to(cwd) else path
    return Place(str(file), max(1, location.line))


def _of_run(finding: Finding, run: str) -> dict[str, Any]:
    told = {
        "run": run,
        "evidence": finding.evidence,
        "predicted_gain": finding.predicted_gain,
        "remedy": finding.remedy,
    }
    return {name: value for name, value in encode(told).items() if name != FACTS}


def _rule(code: str, findings: Sequence[SourceFinding], texts: Mapping[str, str]) -> dict[str, Any]:
    first = next(finding for finding in findings if finding.code == code)
    rule: dict[str, Any] = {"id": code, "shortDescription": {"text": first.title}}
    if code in texts:
        rule["fullDescription"] = {"text": texts[code].strip().partition("\n")[0]}
        rule["help"] = {"text": texts[code].strip()}
    rule["properties"] = {"tags": [first.family]}
    return rule


def _result(finding: SourceFinding, at: int) -> dict[str, Any]:
    words = (
        english(finding.cause)
        if finding.change is None
        else f"{english(finding.cause)}. Help: {english(finding.change)}"
    )
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": at,
        "level": _LEVELS[finding.severity],
        "message": {"text": words},
        "locations": [_location(finding.place)],
    }
    if finding.measured is not None:
        result["properties"] = {"measured": measured_to_dict(finding.measured, english(finding.measured.words))}
        if finding.measured.share is not None:
            result["rank"] = round(100.0 * min(1.0, finding.measured.share), 2)
    if finding.related:
        result["relatedLocations"] = [
            {**_location(other.place), "id": number, "message": {"text": english(other.words)}}
            for number, other in enumerate(finding.related)
        ]
    # The regions of a replacement count in the file; those of a cell count in the cell.
    if finding.fix is not None and all(edit.place.cell is None for edit in finding.fix.edits):
        result["fixes"] = [_fix(finding.fix)]
    return result


def _fix(fix: Fix) -> dict[str, Any]:
    by_file: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.place.file, []).append(edit)
    words = english(fix.words) + ("" if fix.is_safe else " (may change what the script computes or prints)")
    return {
        "description": {"text": words},
        "artifactChanges": [
            {"artifactLocation": {"uri": _uri(file)}, "replacements": [_replacement(edit) for edit in edits]}
            for file, edits in by_file.items()
        ],
    }


def _replacement(edit: Edit) -> dict[str, Any]:
    place = edit.place
    end = (place.end_line, place.end_column) if place.end_column else (place.line, place.column)
    region = {"startLine": place.line, "startColumn": place.column, "endLine": end[0], "endColumn": end[1]}
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _uri(file: str) -> str:
    """Relative to the project. What lies elsewhere has a scheme, or a service would look for it in there."""
    path = PurePath(file)
    return f"file://{quote(path.as_posix())}" if path.is_absolute() else quote(path.as_posix())


def _location(place: Place) -> dict[str, Any]:
    region = {"startLine": place.line, "startColumn": place.column}
    if place.end_line and place.end_column:
        region |= {"endLine": place.end_line, "endColumn": place.end_column}
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {place.cell}", "kind": "module"}]
    return location
