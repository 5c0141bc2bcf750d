"""The checklist of a run for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.records.checklist import Check
from flatout.report import text
from flatout.words import english

_MARKS = {"met": "✓", "missed": "✗", "not measured": "·"}
_PLAIN_MARKS = {"met": "x", "missed": "-", "not measured": "?"}


def render(checks: Sequence[Check], unicode: bool = True) -> str:
    """Grouped lines, each with its mark and its figure, ending in a newline."""
    marks = _MARKS if unicode else _PLAIN_MARKS
    width = max(len(english(check.asked)) for check in checks)
    lines: list[str] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", f" {group[0].upper()}{group[1:]}"]
        figure = english(check.figure) if unicode else text.ascii_only(english(check.figure))
        lines.append(f"   {marks[check.state]} {english(check.asked).ljust(width)}  {figure}".rstrip())
    return "\n".join(lines[1:]) + "\n"
