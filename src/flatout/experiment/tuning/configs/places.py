"""Where a key's value stands in the text of a config file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The characters from `start` up to `end` are the value. `before` goes in front of another one."""

    start: int
    end: int
    before: str = ""


class NotThere(Exception):
    """The key is not in the file. `depth` parts of it are, and there, at `line`, these keys stand."""

    def __init__(self, depth: int, line: int, keys: Iterable[str]) -> None:
        super().__init__()
        self.depth, self.line, self.keys = depth, line, tuple(keys)


class NotReadable(Exception):
    """The text is not what its name says, or does what must not be followed; the words say what, with the line."""
