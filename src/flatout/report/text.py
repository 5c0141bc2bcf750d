"""How figures, durations, paths and bars look in a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from flatout.records.proof import MeasuredGain

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ASCII = str.maketrans(
    {
        "·": "-",
        "±": "+-",
        "µ": "u",
        "…": "~",
        "–": "-",
        "×": "x",
        "→": "->",
        "≥": ">=",
        "≤": "<=",
        "█": "#",
        "▏": "|",
    }
    | dict.fromkeys("▎▍", ".")
    | dict.fromkeys("▌▋▊▉", "=")
)


_SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


def ascii_only(text: str) -> str:
    """For a terminal that cannot show our signs. Other letters are left to the stream's own replacement."""
    return text.translate(_ASCII)


def clean(text: str) -> str:
    """No escape sequence in a file or function name reaches the terminal."""
    return _CONTROL.sub("?", text)


def fold_command(words: str, room: int, indent: str = "") -> str:
    """A command line of the shell, over as many lines as it takes: pasted as it is, it works."""
    # Split at blanks outside quotes; the words themselves stay as they are written.
    lines: list[str] = []
    for word in _SHELL_WORD.findall(clean(words)):
        if lines and len(lines[-1]) + 1 + len(word) <= room - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(word if not lines else f"{indent}{word}")
    return " \\\n".join(lines)


def figure(value: float) -> str:
    """Three figures that matter: 1,234 · 45.6 · 3.21 · 0.04."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def milliseconds(ms: float) -> str:
    """A time a step may take, in the unit that reads best."""
    if ms >= 9_999.5:
        return f"{figure(ms / 1e3)} s"
    if ms < 0.0995 and ms > 0:
        return f"{ms * 1e3:.0f} µs"
    return f"{figure(ms)} ms"


def percent(share: float) -> str:
    """0..1 as a percentage; something small is never shown as nothing."""
    if 0 < share < 0.005:
        return "<1%"
    return f"{share * 100:.0f}%"


def duration(seconds: float) -> str:
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def gibibytes(size_bytes: float) -> str:
    gib = size_bytes / 2**30
    return f"{figure(gib)} GiB" if gib >= 0.1 else f"{size_bytes / 2**20:.0f} MiB"


def bar(share: float, cells: int) -> str:
    """A bar of up to `cells` characters, exact to an eighth; anything above zero shows at least a sliver."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def place(file: str, line: int, cells: int, cwd: Path | None) -> str:
    """file:line, relative to the working directory where that is shorter, cut in the middle to fit."""
    return shorten(relative(file, cwd), max(4, cells - len(str(line)) - 1)) + f":{line}"


def relative(file: str, cwd: Path | None) -> str:
    if cwd is not None and os.path.isabs(file):
        inside = os.path.relpath(file, cwd)
        if not inside.startswith(".."):
            return inside
    home = os.path.expanduser("~")
    return "~" + file[len(home) :] if home != "/" and file.startswith(home + "/") else file


def shorten(path: str, cells: int) -> str:
    """Keep the beginning and, more of it, the end: the file's name tells most."""
    path = clean(path)
    if len(path) <= cells:
        return path
    if cells <= 1:
        return "…"[:cells]
    name = path.rsplit("/", 1)[-1]
    tail = len(name) + 1 if len(name) + 3 <= cells else (cells - 1) * 2 // 3
    tail = min(max(tail, (cells - 1) * 2 // 3), cells - 1)
    return path[: cells - 1 - tail] + "…" + path[len(path) - tail :]


def ratio(value: float) -> str:
    return f"×{value:.2f}"


def told(value: float | None, draw: Callable[[float], str]) -> str:
    """As `draw` writes it, and a dash for what was not measured."""
    return "–" if value is None else draw(value)


def with_interval(gain: MeasuredGain, digits: int = 2) -> str:
    """×1.36 (1.30 … 1.44)"""
    return f"×{gain.mid:.{digits}f} ({gain.low:.{digits}f} … {gain.high:.{digits}f})"
