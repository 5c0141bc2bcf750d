"""Findings in source on a terminal: with the line and a caret, one a line, or counted."""

from __future__ import annotations

import difflib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from flatout.records.source import SYNTAX, CheckReport, Fix, Measured, MeasuredRun, Place, SourceFinding
from flatout.report import text
from flatout.report.layout import draw_lines
from flatout.report.text import clean
from flatout.words import english
from flatout.words.codec import encode

_STYLE = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan", "hint": "bold blue", "error": "bold red"}
_LONGEST = 160
SAFE, UNSAFE = "[*]", "[~]"


def render_full(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """Each finding with its line, what is wrong, and what to do."""
    lines: list[Text] = []
    for finding in report.findings:
        lines += [*_shown(finding, report), Text()]
    return draw_lines([*lines, *_summary(report)], 100, color, unicode)


def render_concise(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """One line each."""
    lines = [
        _head(finding).append(f": {text.clean(english(finding.cause))}{_cost(finding, report)}")
        for finding in report.findings
    ]
    return draw_lines([*lines, *_summary(report)], 100, color, unicode)


def render_statistics(report: CheckReport, *, color: bool, unicode: bool) -> str:
    """How often each problem is found, the most frequent first."""
    counts = Counter((finding.code, finding.title) for finding in report.findings)
    lines = [
        Text.assemble((f"{count:6} ", "bold"), (f"{code:<14} ", "bold yellow"), title)
        for (code, title), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return draw_lines([*lines, *_summary(report)], 100, color, unicode)


def format_place(place: Place) -> str:
    """file:line:column, with the cell in a notebook."""
    cell = f"cell {place.cell}:" if place.cell is not None else ""
    return f"{text.clean(place.file)}:{cell}{place.line}:{place.column}"


def _head(finding: SourceFinding) -> Text:
    fixable = (f" {_mark(finding)}", "bold green") if finding.fix is not None else ""
    return Text.assemble(
        (format_place(finding.place), "bold"),
        ": ",
        (finding.code, _STYLE[finding.severity]),
        fixable,
        " ",
        finding.title,
    )


def _mark(finding: SourceFinding) -> str:
    """Whether flatout can fix it; the last line says what the marks mean."""
    return "" if finding.fix is None else SAFE if finding.fix.is_safe else UNSAFE


def _cost(finding: SourceFinding, report: CheckReport) -> str:
    if finding.measured is None or report.run is None:
        return ""
    return f" [{measured_in_short(finding.measured, report.run)}]"


def _shown(finding: SourceFinding, report: CheckReport) -> Iterator[Text]:
    yield _head(finding)
    place = finding.place
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
                (f" {gutter} | ", "blue"), " " * before, ("^" * min(wide, _LONGEST - before), _STYLE[finding.severity])
            )

    def beside(*parts: str | tuple[str, str]) -> Text:
        return Text.assemble((f" {gutter} = ", "blue"), *parts)

    yield beside(text.clean(english(finding.cause)))
    if finding.measured is not None and report.run is not None:
        yield beside(("measured: ", "bold magenta"), text.clean(measured_in_words(finding.measured, report.run)))
    if finding.change is not None:
        yield beside(("help: ", "bold cyan"), text.clean(english(finding.change)))
    if finding.fix is not None:
        yield beside((f"fix {_mark(finding)}: ", "bold green"), text.clean(english(finding.fix.words)))
    for other in finding.related:
        yield beside((format_place(other.place), "dim"), f": {english(other.words)}")


def count_of(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _summary(report: CheckReport) -> Iterator[Text]:
    files = count_of(report.files, "file")
    if report.fixed:
        yield Text(f"{report.fixed:,} fixed in {count_of(report.fixed_files, 'file')}.", "green")
    if not report.findings:
        yield Text(f"Nothing {'left' if report.fixed else 'found'} in {files}.", "green")
        return
    broken = sum(finding.code == SYNTAX for finding in report.findings)
    found = len(report.findings) - broken
    parts = [count_of(found, "finding")] if found else []
    parts += [f"{count_of(broken, 'file')} that cannot be parsed"] if broken else []
    line = Text(f"{' and '.join(parts)} {'left ' if report.fixed else ''}in {files}.", "bold")
    yield line.append(" Run `flatout explain CODE` for details.", "dim") if found else line
    yield from _legend(report)


def _legend(report: CheckReport) -> Iterator[Text]:
    safe = sum(finding.fix is not None and finding.fix.is_safe for finding in report.findings)
    unsafe = sum(finding.fix is not None and not finding.fix.is_safe for finding in report.findings)
    parts = [f"{SAFE} {safe:,} fixable with --fix"] if safe else []
    parts += [f"{UNSAFE} {unsafe:,} {'more ' if safe else 'fixable '}with --fix --unsafe-fixes"] if unsafe else []
    if parts:
        yield Text(f"{', '.join(parts)}.", "green")


# What a run measured of a finding.


def measured_in_short(measured: Measured, run: MeasuredRun) -> str:
    """`3.10 ms of 48.0 ms a step`, `free: 20 µs of 48.0 ms a step`, `not reached`."""
    amount = _amount(measured, run)
    if measured.state == "costs":
        return amount or "costs something, not in time"
    if measured.state == "free":
        return f"free: {amount}"
    return measured.state.replace("_", " ")


def measured_in_words(measured: Measured, run: MeasuredRun) -> str:
    """The same with what there is to say about it."""
    amount = _amount(measured, run)
    if measured.state == "costs":
        said = f"{amount} ({text.percent(measured.share or 0.0)})" if amount else ""
    elif measured.state == "free":
        said = f"free in this run, {amount}"
    else:
        said = "not reached in this run" if measured.state == "not_reached" else "not measured in this run"
    return ": ".join(part for part in (said, english(measured.words)) if part)


def measured_to_dict(measured: Measured | None, words: str | None = None) -> dict[str, Any] | None:
    """`words` are those to write instead of the message."""
    if measured is None:
        return None
    return {
        "state": measured.state,
        "ms_per_step": _rounded(measured.ms_per_step),
        "share": _rounded(measured.share),
        "words": measured.words if words is None else words,
    }


def measured_run_to_dict(run: MeasuredRun | None) -> dict[str, Any] | None:
    return None if run is None else {"id": run.id, "step_ms": _rounded(run.step_ms), "device": run.device}


def _amount(measured: Measured, run: MeasuredRun) -> str:
    if measured.ms_per_step is None:
        return ""
    return f"{text.milliseconds(measured.ms_per_step)} of {text.milliseconds(run.step_ms)} per step"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


# What `--fix` would change, as a unified diff that `patch -p1` and `git apply` take.

_MISSING = b"\n\\ No newline at end of file\n"
_COLORS = {b"+": b"\x1b[32m", b"-": b"\x1b[31m", b"@": b"\x1b[36m"}


def render_diff(before: Mapping[str, bytes], after: Mapping[str, bytes], *, color: bool) -> bytes:
    """Bytes, because files may be in any encoding."""
    lines = [line for file in sorted(after) for line in _of_file(file, before[file], after[file])]
    return b"".join(_colored(line) if color else line for line in lines)


def _of_file(file: str, before: bytes, after: bytes) -> Iterator[bytes]:
    name = _name(file)
    names = (f"a/{name}".encode(errors="surrogateescape"), f"b/{name}".encode(errors="surrogateescape"))
    # A tab ends a name that has blanks in it.
    from_file, to_file = (name + b"\t" if b" " in name else name for name in names)
    found = difflib.diff_bytes(difflib.unified_diff, _split_lines(before), _split_lines(after), from_file, to_file)
    for line in found:
        yield line if line.endswith(b"\n") else line + _MISSING


def _split_lines(data: bytes) -> list[bytes]:
    """As `patch` counts them: only a line feed ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _name(file: str) -> str:
    """Below the current folder where it is, since that is where the diff is applied."""
    within = os.path.relpath(file)
    return (file.lstrip("/") if within.startswith("..") else within).replace(os.sep, "/")


def _colored(line: bytes) -> bytes:
    if line.startswith((b"---", b"+++")):
        return b"\x1b[1m" + line.rstrip(b"\n") + b"\x1b[0m\n"
    start = _COLORS.get(line[:1])
    return line if start is None else start + line.rstrip(b"\n") + b"\x1b[0m\n"


def render_outlook(first: Sequence[SourceFinding], fixed: int, files: int, *, unsafe: bool) -> str:
    """What the diff does, and what it leaves: findings that need more leave, and those nobody can fix for the user."""
    lines = [f"{fixed:,} would be fixed in {count_of(files, 'file')}." if fixed else "Nothing would be changed."]
    held = [finding for finding in first if finding.fix is not None and not finding.fix.is_safe and not unsafe]
    never = [finding for finding in first if finding.fix is None]
    for words, findings in (
        ("Fixed only with --unsafe-fixes, which may change what the script computes or prints:", held),
        ("To be fixed by hand:", never),
    ):
        if findings:
            lines += [
                words,
                *(f"  {format_place(finding.place)}: {finding.code} {clean(finding.title)}" for finding in findings),
            ]
    return "\n".join(lines) + "\n"


# For machines: our own JSON, and GitHub's annotations.


SCHEMA = 1
_LEVELS = {"error": "error", "high": "error", "medium": "warning", "low": "notice", "hint": "notice"}


def to_json(report: CheckReport) -> str:
    """Schema 1, additive from here on."""
    findings = [
        {
            "code": finding.code,
            "family": finding.family,
            "title": finding.title,
            "severity": finding.severity,
            "location": _place(finding.place),
            "cause": finding.cause,
            "change": finding.change,
            "related": [{"location": _place(other.place), "words": other.words} for other in finding.related],
            "fix": _fix(finding.fix),
            **({} if report.run is None else {"measured": measured_to_dict(finding.measured)}),
        }
        for finding in report.findings
    ]
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "files": report.files,
        "findings": findings,
        "trouble": list(report.trouble),
    }
    if report.fixed:
        whole["fixed"] = {"findings": report.fixed, "files": report.fixed_files}
    if report.run is not None:
        whole |= {"run": measured_run_to_dict(report.run), "notices": list(report.notices)}
    return json.dumps(encode(whole), indent=1) + "\n"


def _fix(fix: Fix | None) -> dict[str, Any] | None:
    """An edit without an end in its place is put in there."""
    if fix is None:
        return None
    edits = [{"location": _place(edit.place), "text": edit.text} for edit in fix.edits]
    return {"safe": fix.is_safe, "words": fix.words, "edits": edits}


def _place(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {"file": place.file, "line": place.line, "column": place.column}
    if place.end_column:
        found |= {"end_line": place.end_line, "end_column": place.end_column}
    if place.cell is not None:
        found["cell"] = place.cell
    return found


def render_github(report: CheckReport) -> str:
    """Workflow commands: GitHub shows each at its line of a pull request."""
    return "".join(_commands(report))


def _commands(report: CheckReport) -> Iterator[str]:
    for finding in report.findings:
        place = finding.place
        facts = {
            "file": place.file,
            "line": place.line,
            "col": place.column,
            "title": f"{finding.code} {finding.title}",
        }
        if place.end_line:
            facts |= {"endLine": place.end_line}
        words = (
            english(finding.cause)
            if finding.change is None
            else f"{english(finding.cause)}\nhelp: {english(finding.change)}"
        )
        if finding.measured is not None and report.run is not None:
            words += f"\nmeasured: {measured_in_words(finding.measured, report.run)}"
        given = ",".join(f"{key}={_escaped(str(value), in_value=True)}" for key, value in facts.items())
        yield f"::{_LEVELS[finding.severity]} {given}::{_escaped(words)}\n"


def _escaped(words: str, in_value: bool = False) -> str:
    words = words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return words.replace(":", "%3A").replace(",", "%2C") if in_value else words
