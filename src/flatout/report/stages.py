"""The table of the model's stages for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from flatout.records.report import StageCost
from flatout.report import text
from flatout.report.layout import Page, wrap_paragraph

# The last columns give way on a narrow terminal, parameters first.
_COLUMNS = (("params", 8), ("forward", 10), ("backward", 10), ("share", 6), ("if 2×", 8), ("if free", 8))
_ENOUGH_FOR_NAME = 16
_FIRST_TO_GO = ("params", "if 2×", "if free")


def stage_table(page: Page) -> Iterator[Text]:
    costs = page.report.stages
    if not costs:
        return
    columns = _columns(page.width)
    room = page.width - 1 - sum(cells for _, cells in columns)
    head = Text(f" {'Stages of your model'[:room]:<{room}}", "bold")
    for name, cells in columns:
        head.append(name.rjust(cells), "dim")
    yield head
    for cost in costs:
        yield _line(cost.name, _figures(cost), columns, room, "cyan")
    rest = 1 - sum(cost.share or 0.0 for cost in costs)
    if rest > 0.005 and any(cost.share is not None for cost in costs):
        yield _line("the rest of the step", {"share": text.percent(rest)}, columns, room, "dim")
    if columns[-1][0] == "if free":
        yield from wrap_paragraph(
            "", "if 2×, if free: the most the step can gain by making the stage twice as fast, or free", page, "dim"
        )


def _columns(width: int) -> list[tuple[str, int]]:
    columns = list(_COLUMNS)
    for name in _FIRST_TO_GO:
        if width - sum(cells for _, cells in columns) < _ENOUGH_FOR_NAME + 1:
            columns = [column for column in columns if column[0] != name]
    return columns


def _figures(cost: StageCost) -> dict[str, str]:
    return {
        "params": _count(cost.parameters),
        "forward": text.milliseconds(cost.forward_ms),
        "backward": "–" if cost.backward_ms is None else text.milliseconds(cost.backward_ms),
        "share": "–" if cost.share is None else text.percent(cost.share),
        "if 2×": _ratio(cost.if_twice),
        "if free": _ratio(cost.if_free),
    }


def _line(name: str, figures: dict[str, str], columns: list[tuple[str, int]], room: int, style: str) -> Text:
    line = Text.assemble(" ", (text.shorten(name, room - 1).ljust(room), style))
    for column, cells in columns:
        line.append(figures.get(column, "").rjust(cells), "bold" if column == "share" else "")
    return line


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"×{value:.2f}"


def _count(parameters: int) -> str:
    """Parameters of a stage: 640 · 12.3 k · 4.56 M · 1.20 G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if parameters >= size:
            return f"{text.figure(parameters / size)} {unit}"
    return str(parameters)
