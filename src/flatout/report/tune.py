"""What a search came to: a table for the terminal, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.records.tune import Pick, Point, Tuned, describe_setting
from flatout.report import text
from flatout.words import english
from flatout.words.codec import encode

_MOST_FAILED = 8


def render(tuned: Tuned, verbose: bool = False, unicode: bool = True) -> str:
    """Plain text that ends in a newline."""
    ended = f" · {english(tuned.ended)}" if tuned.ended else ""
    head = f"{english(tuned.method)} · {tuned.trials} trials in {text.duration(tuned.wall_s)}{ended}"
    first = [f" DISTURBED  {english(tuned.disturbed)}", ""] if tuned.disturbed is not None else []
    lines = [*first, f" {head}", "", *_table(tuned), *_failed(tuned, verbose)]
    lines += [""] * bool(tuned.notices) + [f" {english(notice)}" for notice in tuned.notices]
    lines += ["", *_picks(tuned)]
    page = "\n".join(lines)
    return (page if unicode else text.ascii_only(page)) + "\n"


def to_json(tuned: Tuned) -> dict[str, Any]:
    """What is not measured is null; NaN never appears."""
    value: dict[str, Any] = encode(tuned)
    return {"schema": value.pop("schema"), **value}


def point_figures(tuned: Tuned, point: Point) -> str:
    """The line of one point while a search runs."""
    return " · ".join(cell for cell in (_speed(tuned, point), _memory(point), _metric(point)) if cell != "–")


def _table(tuned: Tuned) -> Iterator[str]:
    rows = [["setting", tuned.rate, "gain", tuned.memory, *(["metric"] if tuned.metric is not None else [])]]
    marks = [""]
    shown = [point for point in tuned.points if point.is_usable]
    longest = max((point.steps for point in shown), default=0)
    shown = [point for point in shown if point.steps == longest]
    if tuned.baseline is not None and tuned.baseline not in shown:
        shown = [tuned.baseline, *shown]
    front = [point.setting for point in tuned.front]
    for point in sorted(shown, key=lambda point: tuned.speed(point) or 0.0):
        rows.append(_row(tuned, point))
        is_chosen = tuned.chosen.point is not None and point.setting == tuned.chosen.point.setting
        marks.append("→" if is_chosen else "·" if point.setting in front else "")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for mark, row in zip(marks, rows, strict=True):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield f" {mark:1} {'  '.join(cells)}".rstrip()
    yield "   → chosen  · Pareto front: no measured setting is better in every respect"


def _row(tuned: Tuned, point: Point) -> list[str]:
    row = [describe_setting(point.setting), _speed(tuned, point), _gain(tuned, point), _memory(point)]
    return [*row, _metric(point)] if tuned.metric is not None else row


def _speed(tuned: Tuned, point: Point) -> str:
    speed = tuned.speed(point)
    if speed is None:
        return "–"
    error = "" if point.error is None else f" ±{100 * point.error:.0f}%"
    return f"{text.figure(speed)}{error}"


def _gain(tuned: Tuned, point: Point) -> str:
    before = None if tuned.baseline is None else tuned.speed(tuned.baseline)
    after = tuned.speed(point)
    return f"×{after / before:.2f}" if before and after else "–"


def _memory(point: Point) -> str:
    return "–" if point.memory_bytes is None else text.gibibytes(point.memory_bytes)


def _metric(point: Point) -> str:
    return "–" if point.metric is None else f"{point.metric:.6g}"


def _failed(tuned: Tuned, verbose: bool) -> Iterator[str]:
    failed = [point for point in tuned.points if not point.is_usable]
    if not failed:
        return
    yield ""
    yield " Failed"
    shown = failed if verbose else failed[:_MOST_FAILED]
    for point in shown:
        yield f"   {describe_setting(point.setting)}: {text.clean(english(point.why))}"
    if len(shown) < len(failed):
        yield f"   and {len(failed) - len(shown)} more (--json has them all)"


def _picks(tuned: Tuned) -> Iterator[str]:
    width = max(len(pick.name) for pick in (*tuned.presets, tuned.chosen))
    if tuned.presets:
        yield " Presets"
        yield from (f"   {pick.name.ljust(width)}  {_pick(pick)}" for pick in tuned.presets)
        yield ""
    yield f" Chosen: {_pick(tuned.chosen)}"
    if tuned.chosen.command:
        yield f" Use it: {text.clean(tuned.chosen.command)}"


def _pick(pick: Pick) -> str:
    return english(pick.why) if pick.point is None else f"{describe_setting(pick.point.setting)} ({english(pick.why)})"
