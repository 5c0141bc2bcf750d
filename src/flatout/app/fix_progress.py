"""What a search is doing: a line on the terminal for the trial being made, and one that stays for what was found."""

from __future__ import annotations

import time

from flatout.experiment.request import Request
from flatout.launch.terminal import Terminal, write_stderr
from flatout.records.fix import Tried
from flatout.report.fix import gain_with_bounds, remedy_with_value

_SAY = {
    "look": "looking at the script",
    "trial": "trial {number}: {arm}",
    "time": "{took:.0f} s, at most {left:.0f} s to go",
    "took": "{took:.0f} s",
    "found": "{remedy}: {state}{figure}",
}


class Progress:
    """Without a terminal every trial is a line of its own."""

    def __init__(self, screen: Terminal, quiet: bool, budget_s: float | None = None) -> None:
        self.screen = screen
        self.budget_s = budget_s
        self._is_shown = not quiet
        self._is_line = screen.fd is not None
        self._number = 0
        self._began_s = time.monotonic()

    def begins(self, request: Request) -> None:
        self._number += 1
        words = _SAY["look"] if request.with_lines else _SAY["trial"].format(number=self._number, arm=request.arm)
        self.say(f"{words} ({self._time()})", stays=False)

    def found(self, tried: Tried) -> None:
        """A remedy was judged; what it came to may still change with more trials."""
        gain = tried.gain
        figure = f", {gain_with_bounds(gain)}" if gain is not None else ""
        self.say(_SAY["found"].format(remedy=remedy_with_value(tried.planned), state=tried.state, figure=figure))

    def _time(self) -> str:
        took = time.monotonic() - self._began_s
        if self.budget_s is None:
            return _SAY["took"].format(took=took)
        return _SAY["time"].format(took=took, left=max(0.0, self.budget_s - took))

    def say(self, words: str, stays: bool = True) -> None:
        if not self._is_shown:
            return
        if self._is_line:
            write_stderr(f"\r\x1b[Kflatout: {words}" + ("\n" if stays else ""))
        else:
            write_stderr(f"flatout: {words}\n")

    def end(self) -> None:
        if self._is_shown and self._is_line:
            write_stderr("\r\x1b[K")
