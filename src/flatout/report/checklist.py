"""The checklist of a run for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.records.checklist import Check
from flatout.report import text

_MARKS = {"met": "✓", "missed": "✗", "not measured": "·"}
_PLAIN_MARKS = {"met": "x", "missed": "-", "not measured": "?"}


def render(checks: Sequence[Check], unicode: bool = True) -> str:
    """Grouped lines, each with its mark and its figure, ending in a newline."""
    marks = _MARKS if unicode else _PLAIN_MARKS
    width = max(len(check.asked) for check in checks)
    lines: list[str] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", f" {group[0].upper()}{group[1:]}"]
        figure = check.figure if unicode else text.ascii_only(check.figure)
        lines.append(f"   {marks[check.state]} {check.asked.ljust(width)}  {figure}".rstrip())
    return "\n".join(lines[1:]) + "\n"
