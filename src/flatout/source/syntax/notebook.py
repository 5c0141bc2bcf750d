"""The code cells of a notebook as one text, and the notebook with other texts in its cells."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flatout.errors import FlatoutError

_MAGIC = re.compile(r"^(\s*)[%!?]|^(\s*)\S.*\?\s*$")
# Cells in another language.
_FOREIGN = re.compile(r"^\s*%%(?!time|timeit|capture|prun)")
_SHELL = re.compile(r"^\s*%%(bash|sh|script)\b")


@dataclass(frozen=True, slots=True)
class Cells:
    """`starts[i]` is the first line of the text that belongs to cell `numbers[i]`."""

    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    # Shell commands, by the line of the text that replaces them.
    commands: tuple[tuple[int, str], ...] = ()

    def place(self, line: int) -> tuple[int, int]:
        """Cell and line within it."""
        at = max(0, bisect_right(self.starts, line) - 1)
        return self.numbers[at], line - self.starts[at] + 1


def parse_notebook(raw: str) -> Cells:
    """Raises FlatoutError if it cannot be read; the text is empty if its language is not Python."""
    try:
        notebook = json.loads(raw)
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        cells = [(number, cell) for number, cell in enumerate(notebook["cells"], 1) if cell["cell_type"] == "code"]
        sources = [(number, "".join(cell["source"])) for number, cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FlatoutError("is no notebook that can be read") from error
    if str(language).lower() != "python":
        return Cells("", (1,), (1,))
    lines: list[str] = []
    starts, numbers = [], []
    commands: list[tuple[int, str]] = []
    for number, source in sources:
        starts.append(len(lines) + 1)
        numbers.append(number)
        is_shell = bool(_SHELL.match(source))
        commands += [
            (line, text.strip().lstrip("!"))
            for line, text in enumerate(source.split("\n"), len(lines) + 1)
            if is_shell or text.lstrip().startswith("!")
        ]
        lines += _without_magics(source)
    return Cells("\n".join(lines) + "\n", tuple(starts) or (1,), tuple(numbers) or (1,), tuple(commands))


def _without_magics(source: str) -> list[str]:
    """Puts `pass` in the place of magics and shell lines, which are not Python."""
    lines = source.split("\n")
    if lines and _FOREIGN.match(lines[0]):
        return [""] * len(lines)
    plain = []
    for line in lines:
        found = _MAGIC.match(line)
        plain.append(f"{found[1] or found[2] or ''}pass" if found and not line.lstrip().startswith("#") else line)
    return plain


# Replacing the sources of cells. Every other byte of the JSON stays as it is.

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_READER = json.JSONDecoder()


def cell_sources(raw: str) -> dict[int, str]:
    """The text of each cell by its number among all cells, from 1."""
    return {number: "".join(json.loads(raw[first:last])) for number, (first, last) in _spans(raw).items()}


def replace_cell_sources(raw: str, changed: Mapping[int, str]) -> str:
    """Lines that do not change stay as they were written, with their escapes."""
    # As the notebook is written; as Jupyter does where it does not tell.
    only_ascii = raw.isascii() and "\\u" in raw
    spans = _spans(raw)
    for number in sorted(changed, reverse=True):
        first, last = spans[number]
        raw = raw[:first] + _write_source(raw[first:last], changed[number], only_ascii) + raw[last:]
    return raw


def _spans(raw: str) -> dict[int, tuple[int, int]]:
    try:
        cells = next((first for key, first, _ in _members(raw, _skip_space(raw, 0)) if key == "cells"), None)
        found = {}
        for number, first, _ in _members(raw, cells) if cells is not None else ():
            for key, begins, ends in _members(raw, first):
                if key == "source":
                    found[int(number) + 1] = (begins, ends)
    except (ValueError, IndexError, RecursionError) as error:
        raise FlatoutError("is no notebook that can be read") from error
    return found


def _members(raw: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Members of an object or array: key or index, and the span of the value."""
    is_object = raw[at] == "{"
    at, number = _skip_space(raw, at + 1), 0
    while raw[at] not in "}]":
        key: str | int = number
        if is_object:
            key, at = _READER.raw_decode(raw, at)
            at = _skip_space(raw, _skip_space(raw, at) + 1)
        _, end = _READER.raw_decode(raw, at)
        yield key, at, end
        at = _skip_space(raw, end)
        at, number = _skip_space(raw, at + 1) if raw[at] == "," else at, number + 1


def _skip_space(raw: str, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found else at


def _write_source(before: str, source: str, only_ascii: bool) -> str:
    if not before.startswith("["):
        return json.dumps(source, ensure_ascii=only_ascii)
    old = [(first, last) for _, first, last in _members(before, 0)]
    known = {json.loads(before[first:last]): before[first:last] for first, last in old}
    lines = [known.get(line) or json.dumps(line, ensure_ascii=only_ascii) for line in _LINE.findall(source)]
    if not old or not lines:
        return json.dumps(_LINE.findall(source), ensure_ascii=only_ascii)
    opening, closing = before[: old[0][0]], before[old[-1][1] :]
    between = before[old[0][1] : old[1][0]] if len(old) > 1 else f",{opening[1:] or ' '}"
    return opening + between.join(lines) + closing
