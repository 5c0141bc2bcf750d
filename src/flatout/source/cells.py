"""Other sources for the cells of a notebook, with every other byte of its JSON as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from flatout.errors import FlatoutError

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_READER = json.JSONDecoder()


def sources(raw: str) -> dict[int, str]:
    """The text of each cell by its number among all cells, from 1."""
    return {number: "".join(json.loads(raw[first:last])) for number, (first, last) in _spans(raw).items()}


def with_sources(raw: str, changed: Mapping[int, str]) -> str:
    """Lines that a cell keeps stay as they were written, escapes and all."""
    # As the notebook was written; where it does not tell, as Jupyter does it.
    only_ascii = raw.isascii() and "\\u" in raw
    spans = _spans(raw)
    for number in sorted(changed, reverse=True):
        first, last = spans[number]
        raw = raw[:first] + _written(raw[first:last], changed[number], only_ascii) + raw[last:]
    return raw


def _spans(raw: str) -> dict[int, tuple[int, int]]:
    try:
        cells = next((first for key, first, _ in _members(raw, _skipped(raw, 0)) if key == "cells"), None)
        found = {}
        for number, first, _ in _members(raw, cells) if cells is not None else ():
            for key, begins, ends in _members(raw, first):
                if key == "source":
                    found[int(number) + 1] = (begins, ends)
    except (ValueError, IndexError, RecursionError) as error:
        raise FlatoutError("is no notebook that can be read") from error
    return found


def _members(raw: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Of an object or an array: key or index, and where the value stands."""
    is_object = raw[at] == "{"
    at, number = _skipped(raw, at + 1), 0
    while raw[at] not in "}]":
        key: str | int = number
        if is_object:
            key, at = _READER.raw_decode(raw, at)
            at = _skipped(raw, _skipped(raw, at) + 1)
        _, end = _READER.raw_decode(raw, at)
        yield key, at, end
        at = _skipped(raw, end)
        at, number = _skipped(raw, at + 1) if raw[at] == "," else at, number + 1


def _skipped(raw: str, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found else at


def _written(before: str, source: str, only_ascii: bool) -> str:
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
