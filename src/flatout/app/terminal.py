"""What the terminal on stderr can show. Our own words go there, so that stdout holds the script's alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terminal:
    """`fd` is None where stderr is no terminal."""

    fd: int | None
    width: int
    color: bool
    unicode: bool


def terminal(environ: Mapping[str, str]) -> Terminal:
    fd = _fd()
    capable = fd is not None and environ.get("TERM", "dumb") != "dumb"
    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower().replace("-", "")
    return Terminal(
        fd=fd if capable else None,
        width=_width(fd, environ),
        color=capable and not environ.get("NO_COLOR"),
        unicode=encoding.startswith("utf"),
    )


def _fd() -> int | None:
    try:
        return 2 if sys.stderr is not None and os.isatty(2) else None
    except OSError:
        return None


def _width(fd: int | None, environ: Mapping[str, str]) -> int:
    wished = environ.get("COLUMNS", "")
    if wished.isdigit() and int(wished) > 0:
        return int(wished)
    try:
        return os.get_terminal_size(fd).columns if fd is not None else 80
    except OSError:
        return 80


def say(words: str) -> None:
    """Write to stderr, whatever state it is in; nobody listening is no reason to fail."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(words)
            sys.stderr.flush()
    except (OSError, ValueError):
        pass
