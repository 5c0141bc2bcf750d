"""The lines of a log file as a terminal would have shown them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flatout.errors import FlatoutError

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78cM(][AB0]?)")
_ONE_READ = 1 << 20
# Longer than any line that somebody printed for people to read; what follows is cut off.
_LONGEST = 4_000


def log_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text. A progress bar that overwrote itself gives several texts with the same number."""
    try:
        with path.open("rb") as file:
            for number, text in _split(file, path):
                clean = _ESCAPES.sub("", text).strip()
                if clean:
                    yield number, clean
    except OSError as error:
        raise FlatoutError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def _split(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
    while chunk := file.read(_ONE_READ):
        if b"\0" in chunk:
            raise FlatoutError(f"{str(path)!r} is no text: give the log that the training printed")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield from _pieces(number, line)
            number += 1
        if len(rest) > _ONE_READ:
            # A bar that never ends its line: hand out what was overwritten, keep what is still open.
            head, _, rest = rest.rpartition(b"\r")
            yield from _pieces(number, head)
            rest = rest[-_LONGEST:]
    yield from _pieces(number, rest)


def _pieces(number: int, line: bytes) -> Iterator[tuple[int, str]]:
    for piece in line.split(b"\r"):
        if piece:
            yield number, piece[:_LONGEST].decode(errors="replace")
