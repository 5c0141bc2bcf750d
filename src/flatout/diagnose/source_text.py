"""The text of single lines of the user's code, where the file is still as it was when the run began."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location, RunReport
from flatout.records.timeline import Excerpt
from flatout.store.redaction import redact_text
from flatout.store.run import StoredRun

_LONGEST = 1 << 20
DATA_PARALLEL = re.compile(r"^[^#]*(?<![A-Za-z])DataParallel\(")
_AROUND = 3
_WIDEST = 200
_MOST = 80


def source_lines(run: StoredRun, places: Iterable[Location]) -> dict[tuple[str, int], str]:
    """By file and line. A file that is gone, was changed since, or is no plain text gives none."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        wanted[place.file].add(place.line)
    found = {}
    for file, numbers in wanted.items():
        lines = _read(Path(file), run.source_until_unix_s)
        found.update({(file, number): lines[number - 1].strip() for number in numbers if 1 <= number <= len(lines)})
    return found


def whole_file(run: StoredRun, file: str) -> str:
    """All of it; empty where it is not as it was."""
    return "\n".join(_read(Path(file), run.source_until_unix_s))


def first_match(run: StoredRun, lines: Iterable[LineCost], pattern: re.Pattern[str]) -> Location | None:
    """The first line that matches, in the files these lines are of."""
    for file in dict.fromkeys(line.location.file for line in lines):
        for number, text in enumerate(_read(Path(file), run.source_until_unix_s), start=1):
            if pattern.search(text):
                return Location(file, number)
    return None


def _read(path: Path, begun_unix_s: float) -> list[str]:
    try:
        facts = path.stat()
        # A second's grace: file systems round their times.
        if facts.st_mtime > begun_unix_s + 1 or facts.st_size > _LONGEST:
            return []
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


# The user's code around the places that a report names, where it is still as it was when the run began.


def excerpts(run: StoredRun, evidence: Evidence) -> dict[Location, Excerpt]:
    """By place. Of a file that was changed since, the line as it was noted when the run ended, or nothing."""
    texts: dict[str, list[str]] = {}
    noted = noted_lines(run, evidence.report)
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


def noted_lines(run: StoredRun, report: RunReport) -> dict[Location, str]:
    """Those written down when the run ended, and those of files that are still as they were."""
    found = {}
    for item in (run.summary or {}).get("snippets", ()):
        found[Location(item["location"]["file"], item["location"]["line"])] = str(item["text"])
    return found | {snippet.location: snippet.text for snippet in report.snippets}
