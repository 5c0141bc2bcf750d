"""What the terminal on stderr can show. Our own words go there, so that stdout holds the script's alone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import sys
import termios
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from flatout.errors import FlatoutError
from flatout.records.message import Message, message, verbatim

_IN_MEMORY_BYTES = 8 << 20
_ONE_READ = 1 << 16
# Longer than any process needs to flush; a daemon that keeps the terminal open is not waited for.
_LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class Terminal:
    """`fd` is None where stderr is no terminal."""

    fd: int | None
    width: int
    color: bool
    unicode: bool


def detect_terminal(environ: Mapping[str, str]) -> Terminal:
    fd = _fd()
    capable = fd is not None and environ.get("TERM", "dumb") != "dumb"
    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower().replace("-", "")
    return Terminal(
        fd=fd if capable else None,
        width=_width(fd, environ),
        color=capable and not environ.get("NO_COLOR"),
        unicode=encoding.startswith("utf"),
    )


def _fd() -> int | None:
    try:
        return 2 if sys.stderr is not None and os.isatty(2) else None
    except OSError:
        return None


def _width(fd: int | None, environ: Mapping[str, str]) -> int:
    wished = environ.get("COLUMNS", "")
    if wished.isdigit() and int(wished) > 0:
        return int(wished)
    try:
        return os.get_terminal_size(fd).columns if fd is not None else 80
    except OSError:
        return 80


def write_stderr(words: str) -> None:
    """Write to stderr, whatever state it is in; nobody listening is no reason to fail."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(words)
            sys.stderr.flush()
    except (OSError, ValueError):
        pass


def detect_stdout(width: int = 80) -> Terminal:
    """What stdout can show, for verbs whose result goes there; `width` where it is no terminal."""
    return Terminal(
        fd=None,
        width=shutil.get_terminal_size((width, 24)).columns,
        color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
        unicode=(sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf"),
    )


def write_json(file: str, value: object) -> None:
    """For `--json FILE`; "-" is stdout. Raises FlatoutError where the file cannot be written."""
    text = json.dumps(value, indent=2, default=str) + "\n"
    if file != "-":
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise FlatoutError(f"--json {file!r} cannot be written: {error.strerror or error}") from error
    elif sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


class CapturedOutput:
    """Catches what the script prints while the full-screen view is up, and prints all of it afterwards.

    It is a terminal of the script's own, so that it prints as it would on a real one.

    Only streams that are terminals are caught; a redirected one goes straight to its file.
    """

    def __init__(self) -> None:
        # Only the full screen needs these, and they take long to import.
        import tempfile

        from rich.console import Console

        from flatout.report.live import Screen

        self._master, self._slave = os.openpty()
        attributes = termios.tcgetattr(self._slave)
        attributes[1] &= ~termios.OPOST  # bytes as they are: no \r before \n
        termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        # Nameless and gone with us: what a script prints may be private.
        self._kept = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by replay
        self.screen = Screen(Console(stderr=True))
        columns, rows = self.screen.log_size
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read, name="flatout-output", daemon=True)

    @property
    def fds(self) -> tuple[int | None, int | None]:
        """For the script's stdout and stderr; None: leave it as it is."""
        stdout = self._slave if sys.stdout is not None and os.isatty(1) else None
        return stdout, self._slave

    def started(self) -> None:
        """The script holds its end now; ours goes, so that the last of them to close ends the reading."""
        os.close(self._slave)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, _ONE_READ)
            except OSError:  # EIO: everybody has closed the other end
                return
            if not data:
                return
            if self._is_over.is_set():
                continue
            self.screen.log.feed(data)
            try:
                self._kept.write(data)
            except OSError:
                pass  # no room for a copy; the screen still shows it

    def replay(self) -> None:
        """Print everything that was caught. Call after the screen is closed."""
        self._reader.join(_LAST_WORDS_S)
        # Somebody who still holds the terminal may go on writing, but into nothing.
        self._is_over.set()
        self._kept.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(self._kept, sys.stdout.buffer)
        sys.stdout.flush()


class Notices(list[Message]):
    """Lines for the user on what is missing."""

    def unless(self, what: Message) -> _Attempt:
        """`with notices.unless(message("run.no_telemetry")):` try something; if it fails, say so and go on."""
        return _Attempt(self, what)


@dataclass(frozen=True, slots=True)
class _Attempt(AbstractContextManager["_Attempt", bool]):
    notices: Notices
    what: Message

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        why = verbatim(f"{type(error).__name__}: {error}")
        self.notices.append(message("run.attempt_failed", what=self.what, error=why))
        return True
