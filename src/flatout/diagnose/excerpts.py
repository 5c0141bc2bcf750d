"""The user's code around the places that a report names, where it is still as it was when the run began."""

from __future__ import annotations

from collections.abc import Iterator

from flatout.diagnose.source import whole_file
from flatout.records.evidence import Evidence
from flatout.records.report import Location, RunReport
from flatout.records.timeline import Excerpt
from flatout.store.redaction import redact_text
from flatout.store.run import StoredRun

_AROUND = 3
_WIDEST = 200
_MOST = 80


def excerpts(run: StoredRun, evidence: Evidence) -> dict[Location, Excerpt]:
    """By place. Of a file that was changed since, the line as it was noted when the run ended, or nothing."""
    texts: dict[str, list[str]] = {}
    noted = _noted(run, evidence.report)
    found: dict[Location, Excerpt] = {}
    for place in dict.fromkeys(_places(evidence.report)):
        if place.file not in texts:
            texts[place.file] = whole_file(run, place.file).split("\n")
        lines = texts[place.file]
        if 1 <= place.line <= len(lines) and any(lines):
            first = max(1, place.line - _AROUND)
            shown = lines[first - 1 : place.line + _AROUND]
            found[place] = Excerpt(place, first, tuple(_shown(line) for line in shown))
        elif place in noted:
            found[place] = Excerpt(place, place.line, (_shown(noted[place]),))
        if len(found) >= _MOST:
            break
    return found


def _shown(line: str) -> str:
    """A report is handed on: no password that stands in the source goes with it."""
    return redact_text(line)[:_WIDEST]


def _places(report: RunReport) -> Iterator[Location]:
    """Those that matter most first."""
    for finding in report.findings:
        if finding.location is not None:
            yield finding.location
        yield from (other.location for other in finding.related)
    yield from (cost.location for cost in (*report.lines, *report.worker_lines))
    yield from report.sites


def _noted(run: StoredRun, report: RunReport) -> dict[Location, str]:
    found = {}
    for item in (run.summary or {}).get("snippets", ()):
        found[Location(item["location"]["file"], item["location"]["line"])] = str(item["text"])
    return found | {one.location: one.text for one in report.snippets}
