"""`# flatout: ignore[CODE]` comments: which findings they silence, and which of them silence nothing."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.module import Module

_COMMENT = re.compile(r"#\s*flatout:\s*ignore(?:\[(?P<codes>[^\]]*)\])?", re.I)


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment. No codes: it silences everything on its line."""

    line: int
    column: int
    codes: tuple[str, ...]
    text: str


def ignores_in(module: Module) -> list[Ignore]:
    """Comments only: the same words in a string mean nothing."""
    if "flatout:" not in module.text:
        return []
    return [found for line, column, text in _comments(module.text) for found in _read(line, column, text)]


def _read(line: int, column: int, text: str) -> Iterator[Ignore]:
    for match in _COMMENT.finditer(text):
        codes = tuple(code.strip().upper() for code in (match["codes"] or "").split(",") if code.strip())
        yield Ignore(line, column + match.start() + 1, codes, match[0])


def _comments(text: str) -> list[tuple[int, int, str]]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return []
    return [(one.start[0], one.start[1], one.string) for one in tokens if one.type == tokenize.COMMENT]
