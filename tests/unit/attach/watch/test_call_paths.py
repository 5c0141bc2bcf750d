"""Which calls of the script lead to where a thread is."""

from __future__ import annotations

import sys
from typing import Any

from flatout.attach.watch.lines import CallPaths, path_to


class _Written:
    def __init__(self) -> None:
        self.texts: list[Any] = []

    def text(self, what: str, value: object) -> None:
        self.texts.append((what, value))


def _deep(depth: int) -> Any:
    return path_to(sys._getframe()) if depth == 0 else _deep(depth - 1)


def test_the_scripts_lines_come_from_the_outermost_in() -> None:
    # Before it there may be those that started pytest; its own lines are a library's.
    path = _deep(1)[-3:]

    assert [function for _, _, function in path] == [
        "test_the_scripts_lines_come_from_the_outermost_in",
        "_deep",
        "_deep",
    ]
    assert all(file == __file__ for file, _, _ in path)


def test_of_a_long_path_the_innermost_lines_are_kept() -> None:
    assert {function for _, _, function in _deep(100)} == {"_deep"}


def test_a_slice_is_written_once_and_the_next_begins_empty() -> None:
    paths, written = CallPaths(), _Written()
    numbers: dict[tuple[str, int, str], int] = {}

    def number(*at: Any) -> int:
        return numbers.setdefault(at, len(numbers))

    for seconds in (0.25, 0.5):
        paths.add((("a.py", 1, "main"), ("a.py", 7, "draw")), 2, seconds)
    paths.add((("a.py", 1, "main"),), 3, 0.125)
    for since_ns in (5, 6):
        paths.write(lambda: written, number, since_ns)  # type: ignore[arg-type, return-value]

    told = {"since_ns": 5, "paths": [[[0, 1], 2, 0.75, 2], [[0], 3, 0.125, 1]]}
    assert written.texts == [("paths", told)]
