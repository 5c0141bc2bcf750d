"""The text of single lines of the user's code, where the file is still as it was when the run began."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from flatout.records.report import LineCost, Location
from flatout.store.run import StoredRun

_LONGEST = 1 << 20
DATA_PARALLEL = re.compile(r"^[^#]*(?<![A-Za-z])DataParallel\(")


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
