"""Catches what the script prints while the full-screen view is up, and prints all of it afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import sys
import tempfile
import termios
import threading

from rich.console import Console

from flatout.report.screen import Screen

_IN_MEMORY_BYTES = 8 << 20
_ONE_READ = 1 << 16
# Longer than any process needs to flush; a daemon that keeps the terminal open is not waited for.
_LAST_WORDS_S = 1.0


class Output:
    """A terminal of the script's own, so that it prints as it would on a real one.

    Only streams that are terminals are caught; a redirected one goes straight to its file.
    """

    def __init__(self) -> None:
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
