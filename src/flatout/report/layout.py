"""The layout of our terminal pages: a narrow column of labels, and text beside it that knows how to wrap."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flatout.records.message import Message
from flatout.records.report import RunReport
from flatout.report import text
from flatout.words import english

LABEL = 11  # cells of the left column
PHASE_STYLE = {
    "data": "magenta",
    "h2d": "yellow",
    "forward": "green",
    "backward": "blue",
    "optimizer": "cyan",
    "sync": "red",
    "eval": "bright_magenta",
    "checkpoint": "bright_yellow",
    "logging": "bright_red",
    "gc": "bright_blue",
    "other": "bright_black",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a page is to be drawn, and how much of it."""

    width: int = 80
    color: bool = False
    unicode: bool = True
    # What paths are shown relative to.
    cwd: Path | None = None
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What every part of the page needs to know."""

    report: RunReport
    width: int
    cwd: Path | None
    verbose: bool


def separate_parts(parts: Iterable[list[Text]]) -> list[Text]:
    """An empty line before every part that has something to say."""
    lines: list[Text] = []
    for part in parts:
        if part:
            lines += [Text(), *part]
    return lines


def draw_lines(lines: list[Text], width: int, color: bool, unicode: bool) -> str:
    """The lines as one text, in colour or without, with our signs or in ASCII."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        highlight=False,
    )
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)
    result = out.getvalue()
    return result if unicode else text.ascii_only(result)


def wrap_pieces(label: str, body: list[Text], page: Page) -> Iterator[Text]:
    """A label at the left and pieces that stay whole, as many to a line as fit."""
    room = page.width - LABEL - 2
    line, first = Text(), True
    for piece in body:
        if line and line.cell_len + 3 + piece.cell_len > room:
            yield add_label(label if first else "", line)
            line, first = Text(), False
        line += (Text(" · ", "dim") + piece) if line else piece
    if line:
        yield add_label(label if first else "", line)


def add_label(label: str, body: Text, style: str = "bold") -> Text:
    return Text.assemble(" ", (label.ljust(LABEL), style), " ", body)


def wrap_paragraph(
    label: str, words: Message | str, page: Page, style: str = "", label_style: str = "bold"
) -> Iterator[Text]:
    wrapped = Text(text.clean(english(words)), style).wrap(Console(width=page.width), page.width - LABEL - 2)
    for n, line in enumerate(wrapped):
        line.rstrip()
        yield add_label(label if n == 0 else "", line, label_style)


def wrap_command(label: str, words: str, page: Page, style: str) -> Iterator[Text]:
    """A command of the shell beside its label."""
    for n, line in enumerate(text.fold_command(words, page.width - LABEL - 2, "  ").splitlines()):
        yield add_label(label if n == 0 else "", Text(line, style))


def wrap_sentence(label: str, words: Message | str, width: int, style: str = "bold") -> list[Text]:
    """A label at the left and a sentence beside it. Names of runs and options have hyphens: they stay whole."""
    lines = textwrap.wrap(text.clean(english(words)), max(20, width - LABEL - 2), break_on_hyphens=False) or [""]
    return [add_label(label if n == 0 else "", Text(line), style) for n, line in enumerate(lines)]
