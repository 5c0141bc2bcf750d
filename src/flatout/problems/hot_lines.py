"""Lines of the user's code and the host time they take, for problems of several families."""

from __future__ import annotations

from flatout.records.evidence import Evidence
from flatout.records.report import LineCost, Location

# Phases in which the training thread runs the user's own code.
_OWN = ("forward", "other")


def lines_in(run: Evidence, *phases: str) -> list[LineCost]:
    """The user's lines that were seen in these phases."""
    return [line for line in run.all_lines or run.report.lines if line.phase in phases]


def host_lines(run: Evidence) -> tuple[LineCost, ...]:
    """The user's lines between the passes and in the forward pass, the dearest first."""
    return tuple(sorted(lines_in(run, *_OWN), key=lambda line: -line.ms))


def ms_at(run: Evidence, location: Location) -> float:
    """Host milliseconds a step at one line."""
    return sum(line.ms for line in host_lines(run) if line.location == location)


def text_at(run: Evidence, location: Location) -> str:
    """The source of a line without its indent; empty where it is not known."""
    known = run.text_at(location)
    if known or location.file not in run.files:
        return known
    lines = run.files[location.file].splitlines()
    return lines[location.line - 1].strip() if 1 <= location.line <= len(lines) else ""


def place_name(location: Location) -> str:
    """A line as a sentence names it: the file without its folders, and the line's number."""
    name = location.file.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{location.line}"
