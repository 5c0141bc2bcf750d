"""One status line at the bottom of the terminal while a script runs, kept out of the script's own output.

The last row is taken out of the scrolling region, so what the script prints scrolls above it. Everything is written in
single writes with the cursor saved and restored, and undone at the end.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from flatout.records.report import RunReport
from flatout.report import text

_SAY = {
    "waiting": "waiting for the first step",
    "steps": "{steps:,} steps",
    "samples": "{rate} samples/s",
    "its": "{rate} it/s",
    "data": "waiting for data {share}",
    "gpu": "GPU {util:.0f}%",
    "starved": "starved {share}",
}
_SMALLEST_ROWS, _SMALLEST_COLUMNS = 5, 30


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """The last few seconds of a run. `None` is "not measured"."""

    elapsed_s: float
    steps: int = 0
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    # Share of the step's wall time by phase.
    phases: dict[str, float] = field(default_factory=dict)
    gpu_util_percent: float | None = None
    gpu_power_share: float | None = None
    gpu_memory_share: float | None = None
    cpu_cores: float | None = None
    memory_share: float | None = None
    starved_share: float | None = None
    # What the run comes to so far, where somebody judges it.
    report: RunReport | None = None


def status_text(figures: LiveFigures, width: int, unicode: bool = True) -> str:
    """The status line, without its last pieces where the terminal is narrow."""
    pieces = ["flatout", text.duration(figures.elapsed_s)]
    if figures.steps == 0:
        pieces.append(_SAY["waiting"])
    else:
        pieces.append(_SAY["steps"].format(steps=figures.steps))
    if figures.samples_per_s is not None:
        pieces.append(_SAY["samples"].format(rate=text.figure(figures.samples_per_s)))
    if "data" in figures.phases:
        pieces.append(_SAY["data"].format(share=text.percent(figures.phases["data"])))
    if figures.gpu_util_percent is not None:
        pieces.append(_SAY["gpu"].format(util=figures.gpu_util_percent))
    if figures.starved_share is not None:
        pieces.append(_SAY["starved"].format(share=text.percent(figures.starved_share)))
    if figures.steps_per_s is not None:
        pieces.append(_SAY["its"].format(rate=text.figure(figures.steps_per_s)))
    line = f" {pieces[0]}"
    for piece in pieces[1:]:
        if len(line) + 3 + len(piece) > width - 1:
            break
        line += f" · {piece}"
    return line if unicode else text.ascii_only(line)


class StatusRow:
    """The reserved last row of the terminal behind `fd`. All methods may be called from any thread."""

    def __init__(self, fd: int, color: bool = True) -> None:
        self._fd = fd
        self._color = color
        self._rows = 0  # of the terminal when the row was reserved; 0: not reserved
        self._lock = threading.Lock()

    def draw(self, line: str) -> None:
        """Show `line`, reserving the row again if the terminal has changed its size."""
        with self._lock:
            try:
                columns, rows = os.get_terminal_size(self._fd)
                if rows < _SMALLEST_ROWS or columns < _SMALLEST_COLUMNS:
                    self._release()
                    return
                if rows != self._rows:
                    self._release()
                    self._reserve(rows)
                shown = line[: columns - 1]
                if self._color:
                    shown = f"\x1b[7m{shown.ljust(columns - 1)}\x1b[0m"
                self._write(f"\x1b7\x1b[{rows};1H\x1b[2K{shown}\x1b8")
            except OSError:
                self._rows = 0  # the terminal is gone: nothing to show, nothing to restore

    def erase(self) -> None:
        """Give the row back to the script."""
        with self._lock:
            try:
                self._release()
            except OSError:
                self._rows = 0

    def _reserve(self, rows: int) -> None:
        # A line feed first and one row up last: the cursor must not be left below the region it belongs to. Setting
        # the region sends the cursor home, hence save and restore.
        self._write(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A")
        self._rows = rows

    def _release(self) -> None:
        if self._rows:
            self._write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[2K\x1b8")
            self._rows = 0

    def _write(self, sequence: str) -> None:
        os.write(self._fd, sequence.encode(errors="replace"))
