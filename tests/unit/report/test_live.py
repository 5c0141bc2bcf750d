"""The status line's words, and that the terminal is left as it was."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from flatout.report.live import LiveFigures, StatusRow, status_text

_FULL = LiveFigures(75.0, 1200, 9.6, 1234.0, {"data": 0.61}, gpu_util_percent=34.0, starved_share=0.6)


def test_the_line_says_what_counts() -> None:
    assert status_text(LiveFigures(3.0), 80) == " flatout · 3.0 s · waiting for the first step"
    assert status_text(_FULL, 120) == (
        " flatout · 75.0 s · 1,200 steps · 1,234 samples/s · waiting for data 61% · GPU 34% · starved 60% · 9.60 it/s"
    )


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_the_line_fits(width: int) -> None:
    assert len(status_text(_FULL, width)) < width


def test_ascii() -> None:
    status_text(_FULL, 80, unicode=False).encode("ascii")


def _resized(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read_to_end(master: int) -> str:
    """What was written to a terminal whose other end is closed; it may arrive in pieces."""
    seen = b""
    try:
        while piece := os.read(master, 10_000):
            seen += piece
    except OSError:
        pass
    os.close(master)
    return seen.decode()


def test_the_row_is_reserved_followed_and_given_back() -> None:
    master, slave = os.openpty()
    row = StatusRow(slave, color=False)
    _resized(slave, 24, 80)
    row.draw("one")
    _resized(slave, 30, 80)
    row.draw("two")
    row.erase()
    row.erase()

    os.close(slave)
    seen = _read_to_end(master)
    assert seen.count("\x1b[1;23r") == 1 and seen.count("\x1b[1;29r") == 1
    # Each reservation is taken back once, and the row it stood in is cleared.
    assert seen.count("\x1b[r") == 2 and "\x1b[r\x1b[24;1H\x1b[2K" in seen
    assert seen.endswith("\x1b7\x1b[r\x1b[30;1H\x1b[2K\x1b8")
    assert seen.count("\x1b7") == seen.count("\x1b8")


def test_a_terminal_too_small_is_left_alone() -> None:
    master, slave = os.openpty()
    _resized(slave, 3, 80)
    StatusRow(slave).draw("x")
    os.close(slave)

    with pytest.raises(OSError):
        os.read(master, 100)
    os.close(master)


def test_a_terminal_that_went_away_is_no_trouble() -> None:
    master, slave = os.openpty()
    _resized(slave, 24, 80)
    row = StatusRow(slave)
    row.draw("x")
    os.close(master)
    row.draw("y")
    row.erase()
    os.close(slave)
