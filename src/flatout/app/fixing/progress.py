"""One line on the terminal that says which trial is being made."""

from __future__ import annotations

import time

from flatout.app.terminal import Terminal, say
from flatout.trials.request import Request

_SAY = {"look": "looking at the script", "trial": "trial {number}: {arm}"}


class Progress:
    """Without a terminal every trial is a line of its own."""

    def __init__(self, screen: Terminal, quiet: bool) -> None:
        self.screen = screen
        self._is_shown = not quiet
        self._is_line = screen.fd is not None
        self._number = 0
        self._began_s = time.monotonic()

    def begins(self, request: Request) -> None:
        self._number += 1
        words = _SAY["look"] if request.with_lines else _SAY["trial"].format(number=self._number, arm=request.arm)
        self.say(f"{words} ({time.monotonic() - self._began_s:.0f} s)", stays=False)

    def say(self, words: str, stays: bool = True) -> None:
        if not self._is_shown:
            return
        if self._is_line:
            say(f"\r\x1b[Kflatout: {words}" + ("\n" if stays else ""))
        else:
            say(f"flatout: {words}\n")

    def end(self) -> None:
        if self._is_shown and self._is_line:
            say("\r\x1b[K")
