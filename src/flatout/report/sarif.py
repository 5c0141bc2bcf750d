"""Findings in source as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from flatout.records.source import CheckReport, Place, SourceFinding

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "high": "warning", "medium": "warning", "low": "note"}


def sarif(report: CheckReport, version: str, texts: Mapping[str, str]) -> str:
    """`texts` holds the explanation of each code that was looked for."""
    rules = list(dict.fromkeys(one.code for one in report.findings))
    driver = {
        "name": "flatout",
        "version": version,
        "rules": [_rule(code, report.findings, texts) for code in rules],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, rules.index(one.code)) for one in report.findings],
    }
    if report.trouble:
        notes = [{"level": "warning", "message": {"text": line}} for line in report.trouble]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": notes}]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str, findings: Sequence[SourceFinding], texts: Mapping[str, str]) -> dict[str, Any]:
    first = next(one for one in findings if one.code == code)
    rule: dict[str, Any] = {"id": code, "shortDescription": {"text": first.title}}
    if code in texts:
        rule["fullDescription"] = {"text": texts[code].strip().partition("\n")[0]}
        rule["help"] = {"text": texts[code].strip()}
    rule["properties"] = {"tags": [first.family]}
    return rule


def _result(one: SourceFinding, at: int) -> dict[str, Any]:
    words = one.cause if one.change is None else f"{one.cause}. Help: {one.change}"
    result: dict[str, Any] = {
        "ruleId": one.code,
        "ruleIndex": at,
        "level": _LEVELS[one.severity],
        "message": {"text": words},
        "locations": [_location(one.place)],
    }
    if one.related:
        result["relatedLocations"] = [
            {**_location(other.place), "id": number, "message": {"text": other.words}}
            for number, other in enumerate(one.related)
        ]
    return result


def _location(place: Place) -> dict[str, Any]:
    region = {"startLine": place.line, "startColumn": place.column}
    if place.end_line and place.end_column:
        region |= {"endLine": place.end_line, "endColumn": place.end_column}
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(PurePath(place.file).as_posix())}, "region": region}
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {place.cell}", "kind": "module"}]
    return location
