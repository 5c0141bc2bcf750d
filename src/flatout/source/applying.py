"""Puts edits into a text: where each of them lies, which get in each other's way, and where a place is afterwards.

Lines end as they end in the text: what an edit adds gets the ends of the lines around it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flatout.errors import FlatoutError
from flatout.records.source import Edit, Place

# Not what `splitlines` takes for one: a form feed stands within a line.
_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """`text` in the place of what stands from `first` up to `last`."""

    first: int
    last: int
    text: str


class Text:
    """A text with its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        ends = list(_END.finditer(text))
        self._starts = [0, *(one.end() for one in ends)]
        self._stops = [*(one.start() for one in ends), len(text)]
        self._usual = ends[0][0] if ends else "\n"

    def change(self, edit: Edit) -> Change:
        """Raises FlatoutError where the text has no such place."""
        place = edit.place
        first = self.offset(place.line, place.column)
        last = self.offset(place.end_line or place.line, place.end_column) if place.end_column else first
        if last < first:
            raise FlatoutError(f"has no line {place.line} to edit as it was read")
        beyond = place.end_line > len(self._starts)
        if beyond and not edit.text and place.column == 1 and place.line > 1:
            first = self._stops[place.line - 2]  # the last line goes with the end of the one before
        return Change(first, last, edit.text.replace("\n", self._end_at(place.line)))

    def offset(self, line: int, column: int) -> int:
        if line == len(self._starts) + 1 and column == 1:
            return len(self.text)
        if not 1 <= line <= len(self._starts) or not 1 <= column <= self._width(line) + 1:
            raise FlatoutError(f"has no line {line} to edit as it was read")
        return self._starts[line - 1] + column - 1

    def where(self, offset: int) -> tuple[int, int]:
        """Line and column."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def _width(self, line: int) -> int:
        return self._stops[line - 1] - self._starts[line - 1]

    def _end_at(self, line: int) -> str:
        at = min(line, len(self._starts)) - 1
        ends = self.text[self._stops[at] : self._starts[at + 1]] if at + 1 < len(self._starts) else ""
        return ends or self._usual


def clash(one: Change, other: Change) -> bool:
    """Do two changes touch the same text, or put something in at the same place?"""
    return one.first == other.first or (one.first < other.last and other.first < one.last)


def changed(text: str, changes: Iterable[Change]) -> str:
    """All of them, which must not clash, from the end on: so that the places before stay right."""
    for one in sorted(changes, reverse=True):
        text = text[: one.first] + one.text + text[one.last :]
    return text


def moved(text: Text, changes: Sequence[Change], place: Place) -> tuple[int, int]:
    """Line and column at which what stood at a place begins after the changes."""
    at = text.offset(place.line, place.column)
    shift = 0
    for one in sorted(changes):
        if one.last <= at:
            shift += len(one.text) - (one.last - one.first)
        elif one.first <= at:
            at = one.first
            break
    return Text(changed(text.text, changes)).where(at + shift)
