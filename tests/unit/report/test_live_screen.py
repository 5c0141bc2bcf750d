"""The full-screen page and the log in it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from flatout.records.message import verbatim
from flatout.records.report import Finding, Gain
from flatout.report.live import LiveFigures, Log, screen_layout
from flatout.words import english
from tests.unit.report.test_terminal import STARVED

FOUND = replace(
    STARVED,
    findings=(
        Finding(
            "IN101",
            "input",
            "Too few workers",
            "warning",
            None,
            {},
            verbatim(""),
            None,
            None,
            Gain(1.2, 1.3, 1.4, verbatim("")),
        ),
    ),
)


def test_the_log_overwrites_as_a_terminal_does_and_loses_no_cursor() -> None:
    log = Log()

    log.feed(b"one\r\ntwo\n 10%\r 20%\r")
    log.feed(b" 30%\x1b[K\x1b[2A\x1b]0;title\x07")

    assert log.last(10) == ["one", "two", " 30%"]
    assert log.last(1) == [" 30%"]


def test_broken_bytes_and_endless_lines_are_no_trouble() -> None:
    log = Log()

    log.feed(b"\xff\xfe\n" + b"x" * 100_000)

    assert len(log.last(5)) == 2 and len(log.last(1)[0]) <= 10_000


def test_the_page_fits_and_says_what_is_not_measured() -> None:
    out = StringIO()
    console = Console(file=out, width=90, height=20, force_terminal=False, color_system=None, legacy_windows=False)
    figures = LiveFigures(9.0, 12, 2.0, 16.0, {"data": 0.7, "forward": 0.3}, cpu_cores=1.5)

    console.print(screen_layout(figures, ["hello", "\x1b[31mred\x1b[0m"], (90, 20)))

    lines = out.getvalue().splitlines()
    assert len(lines) == 20 and max(map(len, lines)) <= 90
    page = "\n".join(lines)
    assert "hello" in page and "red" in page and "1.5 cores" in page
    assert "data       ███████████▎      70%" in page
    assert page.count("not measured") == 5


def test_findings_so_far_stand_below_the_output_and_push_none_of_its_last_lines_away() -> None:
    out = StringIO()
    console = Console(file=out, width=110, height=24, force_terminal=False, color_system=None, legacy_windows=False)
    figures = LiveFigures(9.0, 12, 2.0, 16.0, {"data": 0.7, "forward": 0.3}, report=FOUND)

    console.print(screen_layout(figures, [f"line {n}" for n in range(40)], (110, 24)))

    page = out.getvalue()
    assert len(page.splitlines()) == 24
    assert english(FOUND.verdict.sentence)[:40] in page and "IN101 Too few workers  ×1.20 to ×1.40" in page
    assert "line 39" in page


def test_a_low_terminal_is_left_to_the_output() -> None:
    out = StringIO()
    console = Console(file=out, width=110, height=12, force_terminal=False, color_system=None, legacy_windows=False)

    console.print(screen_layout(LiveFigures(9.0, report=STARVED), ["line"], (110, 12)))

    assert "so far" not in out.getvalue()
