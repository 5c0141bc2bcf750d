"""At a real terminal (a pty): Ctrl-C, the status line in its reserved row, the full-screen view."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON, LIMIT_S, RUN


def _at_a_terminal(words: list[str], cwd: Path, environ: dict[str, str]) -> tuple[int, int]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(words[0], words, environ)
    return pid, terminal


def _read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + LIMIT_S
    while words not in seen and time.monotonic() < deadline:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
    return seen


def test_ctrl_c_at_a_terminal_reaches_the_script_once(script: Callable[[str], Path], tmp_path: Path) -> None:
    text = "import time\nn, end = 0, time.monotonic() + 30\nwhile n == 0 and time.monotonic() < end:\n"
    text += "    try:\n        print('ready', flush=True)\n        time.sleep(30)\n"
    text += "    except KeyboardInterrupt:\n        n += 1\ntime.sleep(0.3)\nprint('count', n)\n"
    pid, terminal = _at_a_terminal([*RUN, str(script(text))], tmp_path, {**ENVIRON, "TERM": "xterm"})
    _read_until(terminal, b"ready")

    os.write(terminal, b"\x03")

    seen = _read_until(terminal, b"count 1")
    _, status = _drained(pid, terminal)
    os.close(terminal)
    assert b"count 1" in seen
    assert os.waitstatus_to_exitcode(status) == 0


def _drained(pid: int, terminal: int) -> tuple[bytes, int]:
    rest = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            data = b""
        if not data:
            return rest, os.waitpid(pid, 0)[1]
        rest += data


def test_the_status_line_is_drawn_in_a_reserved_row_and_taken_away(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script("import time\nfor i in range(14): print('line', i, flush=True); time.sleep(0.1)")
    pid, terminal = _at_a_terminal([*RUN, str(path)], tmp_path, {**ENVIRON, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen, status = _drained(pid, terminal)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[1;23r" in seen  # the region without the last row
    assert b"waiting for the first step" in seen
    assert seen.rfind(b"\x1b[r") > seen.rfind(b"\x1b[1;23r")
    assert b"line 13" in seen


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm", "FLATOUT_QUIET": "1"}])
def test_no_status_line_where_it_is_not_wanted(
    script: Callable[[str], Path], environ: dict[str, str], tmp_path: Path
) -> None:
    path = script("import time; time.sleep(1.2); print('done')")
    pid, terminal = _at_a_terminal([*RUN, str(path)], tmp_path, {**ENVIRON, **environ})

    seen, _ = _drained(pid, terminal)
    os.close(terminal)

    assert b"\x1b[" not in seen and b"done" in seen


def test_live_shows_a_full_screen_and_prints_everything_afterwards(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        "import sys, time\nfor i in range(300): print('row', i)\nsys.stdout.flush()\ntime.sleep(1.2)\nsys.exit(4)"
    )
    pid, terminal = _at_a_terminal([*RUN, "--live", str(path)], tmp_path, {**ENVIRON, "TERM": "xterm"})

    seen, status = _drained(pid, terminal)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == 4
    assert b"\x1b[?1049h" in seen
    after = seen.rpartition(b"\x1b[?1049l")[2]
    assert [line for line in after.split(b"\r\n") if line.startswith(b"row")] == [b"row %d" % i for i in range(300)]
