"""The table of the model's stages for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from flatout.records.report import StageCost
from flatout.report import text
from flatout.report.layout import Page, wrap_paragraph

_SAY = {
    "stages": "Stages of your model",
    "parameters": "params",
    "forward": "forward",
    "backward": "backward",
    "share": "share",
    "twice": "if 2×",
    "free": "if free",
    "rest": "the rest of the step",
    "bound": "if 2×, if free: the most the step can gain by making the stage twice as fast, or free",
    "not_measured": "–",
}
# The last columns give way on a narrow terminal, parameters first.
_COLUMNS = (("parameters", 8), ("forward", 10), ("backward", 10), ("share", 6), ("twice", 8), ("free", 8))
_ENOUGH_FOR_NAME = 16
_FIRST_TO_GO = ("parameters", "twice", "free")


def stage_table(page: Page) -> Iterator[Text]:
    costs = page.report.stages
    if not costs:
        return
    columns = _columns(page.width)
    room = page.width - 1 - sum(cells for _, cells in columns)
    head = Text(" " + _SAY["stages"][:room].ljust(room), "bold")
    for name, cells in columns:
        head.append(_SAY[name].rjust(cells), "dim")
    yield head
    for cost in costs:
        yield _line(cost.name, _figures(cost), columns, room, "cyan")
    rest = 1 - sum(cost.share or 0.0 for cost in costs)
    if rest > 0.005 and any(cost.share is not None for cost in costs):
        yield _line(_SAY["rest"], {"share": text.percent(rest)}, columns, room, "dim")
    if columns[-1][0] == "free":
        yield from wrap_paragraph("", _SAY["bound"], page, "dim")


def _columns(width: int) -> list[tuple[str, int]]:
    columns = list(_COLUMNS)
    for name in _FIRST_TO_GO:
        if width - sum(cells for _, cells in columns) < _ENOUGH_FOR_NAME + 1:
            columns = [column for column in columns if column[0] != name]
    return columns


def _figures(cost: StageCost) -> dict[str, str]:
    return {
        "parameters": _count(cost.parameters),
        "forward": text.milliseconds(cost.forward_ms),
        "backward": _SAY["not_measured"] if cost.backward_ms is None else text.milliseconds(cost.backward_ms),
        "share": _SAY["not_measured"] if cost.share is None else text.percent(cost.share),
        "twice": _ratio(cost.if_twice),
        "free": _ratio(cost.if_free),
    }


def _line(name: str, figures: dict[str, str], columns: list[tuple[str, int]], room: int, style: str) -> Text:
    line = Text.assemble(" ", (text.shorten(name, room - 1).ljust(room), style))
    for column, cells in columns:
        line.append(figures.get(column, "").rjust(cells), "bold" if column == "share" else "")
    return line


def _ratio(value: float | None) -> str:
    return _SAY["not_measured"] if value is None else f"×{value:.2f}"


def _count(parameters: int) -> str:
    """Parameters of a stage: 640 · 12.3 k · 4.56 M · 1.20 G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if parameters >= size:
            return f"{text.figure(parameters / size)} {unit}"
    return str(parameters)
