"""Findings in source on a terminal: with the line and a caret, one a line, or counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from flatout.records.source import SYNTAX, CheckReport, Place, SourceFinding
from flatout.report import measured, text
from flatout.report.page import drawn
from flatout.words import english

_STYLE = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "hint": "bold blue", "error": "bold red"}
_LONGEST = 160
SAFE, UNSAFE = "[*]", "[~]"


def full(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """Each finding with its line, what is wrong, and what to do."""
    lines: list[Text] = []
    for one in report.findings:
        lines += [*_shown(one, report), Text()]
    return drawn([*lines, *_summary(report)], 100, color, unicode)


def concise(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """One line each."""
    lines = [_head(one).append(f": {text.clean(english(one.cause))}{_cost(one, report)}") for one in report.findings]
    return drawn([*lines, *_summary(report)], 100, color, unicode)


def statistics(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """How often each problem is found, the most frequent first."""
    counts = Counter((one.code, one.title) for one in report.findings)
    lines = [
        Text.assemble((f"{count:6} ", "bold"), (f"{code:<14} ", "bold yellow"), title)
        for (code, title), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return drawn([*lines, *_summary(report)], 100, color, unicode)


def where(place: Place) -> str:
    """file:line:column, with the cell in a notebook."""
    cell = f"cell {place.cell}:" if place.cell is not None else ""
    return f"{text.clean(place.file)}:{cell}{place.line}:{place.column}"


def _head(one: SourceFinding) -> Text:
    fixable = (f" {_mark(one)}", "bold green") if one.fix is not None else ""
    return Text.assemble((where(one.place), "bold"), ": ", (one.code, _STYLE[one.severity]), fixable, " ", one.title)


def _mark(one: SourceFinding) -> str:
    """Whether flatout can fix it; the last line says what the marks mean."""
    return "" if one.fix is None else SAFE if one.fix.is_safe else UNSAFE


def _cost(one: SourceFinding, report: CheckReport) -> str:
    return "" if one.measured is None or report.run is None else f" [{measured.in_short(one.measured, report.run)}]"


def _shown(one: SourceFinding, report: CheckReport) -> Iterator[Text]:
    yield _head(one)
    place = one.place
    source = report.lines.get((place.file, place.cell, place.line))
    number = str(place.line)
    gutter = " " * len(number)
    if source is not None:
        source = source.rstrip()
        yield Text.assemble((f" {number} | ", "blue"), text.clean(source.expandtabs(4)[:_LONGEST]))
        before = len(source[: place.column - 1].expandtabs(4))
        ends_here = place.end_line in (0, place.line) and place.end_column > place.column
        last = place.end_column - 1 if ends_here else len(source)
        wide = max(1, len(source[:last].expandtabs(4)) - before)
        if before < _LONGEST:
            yield Text.assemble(
                (f" {gutter} | ", "blue"), " " * before, ("^" * min(wide, _LONGEST - before), _STYLE[one.severity])
            )
    yield Text.assemble((f" {gutter} = ", "blue"), text.clean(english(one.cause)))
    if one.measured is not None and report.run is not None:
        words = text.clean(measured.in_words(one.measured, report.run))
        yield Text.assemble((f" {gutter} = ", "blue"), ("measured: ", "bold magenta"), words)
    if one.change is not None:
        yield Text.assemble((f" {gutter} = ", "blue"), ("help: ", "bold cyan"), text.clean(english(one.change)))
    if one.fix is not None:
        yield Text.assemble(
            (f" {gutter} = ", "blue"), (f"fix {_mark(one)}: ", "bold green"), text.clean(english(one.fix.words))
        )
    for other in one.related:
        yield Text.assemble((f" {gutter} = ", "blue"), (where(other.place), "dim"), f": {english(other.words)}")


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _summary(report: CheckReport) -> Iterator[Text]:
    files = counted(report.files, "file")
    if report.fixed:
        yield Text(f"{report.fixed:,} fixed in {counted(report.fixed_files, 'file')}.", "green")
    if not report.findings:
        yield Text(f"Nothing {'left' if report.fixed else 'found'} in {files}.", "green")
        return
    broken = sum(one.code == SYNTAX for one in report.findings)
    found = len(report.findings) - broken
    parts = [counted(found, "finding")] if found else []
    parts += [f"{counted(broken, 'file')} that cannot be parsed"] if broken else []
    line = Text(f"{' and '.join(parts)} {'left ' if report.fixed else ''}in {files}.", "bold")
    yield line.append(" `flatout explain CODE` tells more.", "dim") if found else line
    yield from _legend(report)


def _legend(report: CheckReport) -> Iterator[Text]:
    safe = sum(one.fix is not None and one.fix.is_safe for one in report.findings)
    unsafe = sum(one.fix is not None and not one.fix.is_safe for one in report.findings)
    parts = [f"{SAFE} {safe:,} fixable with --fix"] if safe else []
    parts += [f"{UNSAFE} {unsafe:,} {'more ' if safe else 'fixable '}with --fix --unsafe-fixes"] if unsafe else []
    if parts:
        yield Text(f"{', '.join(parts)}.", "green")
