"""The place of a value in YAML, found by indentation alone: for flatout in an environment without PyYAML.

Only what is plain: keys on lines of their own, without quotes, anchors or tags, outside of `{…}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flatout.experiment.tuning.configs.places import Key, NotReadable, NotThere, Place

_LINE = re.compile(r"( *)([\w.\-/]+):(?=[ \t]|$)")
_COMMENT = re.compile(r"[ \t]+#[^\n]*$|^[ \t]*#[^\n]*$")
_ODD = re.compile(r"^\s*[&!*|>]")


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    @property
    def is_empty(self) -> bool:
        return not _COMMENT.sub("", self.text).strip()


def find(text: str, key: Key) -> Place:
    lines = _lines(text)
    first, last, indent, number = 0, len(lines), -1, 1
    for depth, name in enumerate(key):
        keys: list[str] = []
        at = _key_line(lines, first, last, indent, name, keys)
        if at is None:
            raise NotThere(depth, number, keys)
        indent, number = lines[at].indent, at + 1
        first, last = at + 1, _end_of_block(lines, at)
    return _place(lines, first - 1, last, indent)


def is_right(after: str, key: Key, value: str) -> bool:
    place = find(after, key)
    return after[place.start : place.end].strip() == value


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    at = 0
    for line in text.splitlines(keepends=True):
        if "\t" in line[: len(line) - len(line.lstrip())] or (line.startswith("---") and found):
            raise NotReadable(f"line {len(found) + 1}: needs PyYAML to be read (pip install pyyaml)")
        found.append(_Line(at, line.rstrip("\r\n")))
        at += len(line)
    return found


def _key_line(lines: list[_Line], first: int, last: int, outer: int, name: str, keys: list[str]) -> int | None:
    """The line of a key right below the outer one; the others that stand there are put into `keys`."""
    inner = None
    for at in range(first, last):
        line = lines[at]
        if line.is_empty or line.indent <= outer:
            continue
        inner = line.indent if inner is None else inner
        found = _LINE.match(line.text)
        if line.indent == inner and found is not None:
            if found.group(2) == name:
                return at
            keys.append(found.group(2))
    return None


def _end_of_block(lines: list[_Line], at: int) -> int:
    """The first line after it that is not deeper; a list may stand at its key's own depth."""
    indent = lines[at].indent
    end = at + 1
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if line.is_empty:
            continue
        if line.indent < indent or (line.indent == indent and not line.text.lstrip().startswith("- ")):
            break
        end = number + 1
    return end


def _place(lines: list[_Line], at: int, end: int, indent: int) -> Place:
    line = lines[at]
    behind = line.text.index(":", indent) + 1
    rest = line.text[behind:]
    if _ODD.match(rest) or (end > at + 1 and rest.strip() and not _COMMENT.fullmatch(rest)):
        raise NotReadable(f"line {at + 1}: needs PyYAML to be edited (pip install pyyaml)")
    if end > at + 1:
        last = lines[end - 1]
        return Place(line.start + behind, last.start + len(_COMMENT.sub("", last.text).rstrip()), " ")
    quoted = re.match(r"\s*(\"[^\"]*\"|'[^']*')", rest)
    value = quoted.group(0) if quoted else _COMMENT.sub("", rest)
    return Place(line.start + behind, line.start + behind + len(value.rstrip()), " ")
