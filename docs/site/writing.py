"""Text of docstrings and helps as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+[^`]*`+)")
_SPECIAL = re.compile(r"([*_\[\]])")


def escaped(text: str) -> str:
    """What is no code keeps its asterisks, underscores and angle brackets; indented blocks are code already."""
    return "\n".join(_paragraph(block) for block in text.split("\n\n"))


def _paragraph(block: str) -> str:
    if all(line.startswith("    ") for line in block.splitlines() if line):
        return f"{block}\n"
    # Every second part lies within backticks.
    parts = _CODE.split(block)
    return "".join(p if i % 2 else _plain(p) for i, p in enumerate(parts)) + "\n"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell that is no code is escaped."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    parts = _CODE.split(" ".join(text.split()))
    return "".join(p if i % 2 else p.replace("|", r"\|") for i, p in enumerate(parts))


def fenced(code: str, language: str) -> str:
    return f"```{language}\n{code.strip(chr(10))}\n```\n"
