"""What a terminal shows while a script runs: a status line, a progress bar, or the full screen.

For the status line the last row is taken out of the scrolling region, so what the script prints scrolls above it.
Everything is written in single writes with the cursor saved and restored, and undone at the end.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from flatout.records.report import PHASES, RunReport
from flatout.report import text
from flatout.report.layout import PHASE_STYLE
from flatout.words import english

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
        pieces.append("waiting for the first step")
    else:
        pieces.append(f"{figures.steps:,} steps")
    if figures.samples_per_s is not None:
        pieces.append(f"{text.figure(figures.samples_per_s)} samples/s")
    if "data" in figures.phases:
        pieces.append(f"waiting for data {text.percent(figures.phases['data'])}")
    if figures.gpu_util_percent is not None:
        pieces.append(f"GPU {figures.gpu_util_percent:.0f}%")
    if figures.starved_share is not None:
        pieces.append(f"starved {text.percent(figures.starved_share)}")
    if figures.steps_per_s is not None:
        pieces.append(f"{text.figure(figures.steps_per_s)} it/s")
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


# The progress bar of a bundled workload.


class StepsBar:
    """Shows the steps done out of `steps`. Gone from the screen when closed: the verdict takes its place."""

    def __init__(self, steps: int, width: int, color: bool) -> None:
        console = Console(stderr=True, width=width, no_color=not color)
        self._progress = Progress(
            TextColumn(" {task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=steps, speed="")
        self._progress.start()

    def show(self, figures: LiveFigures) -> None:
        if not figures.steps:
            return
        pieces = []
        if figures.samples_per_s is not None:
            pieces.append(f"{text.figure(figures.samples_per_s)} samples/s")
        if figures.phases.get("data", 0.0) >= 0.1:
            pieces.append(f"waiting for data {text.percent(figures.phases['data'])}")
        self._progress.update(self._task, description="training", completed=figures.steps, speed=" · ".join(pieces))

    def close(self) -> None:
        self._progress.stop()


# The full-screen view: the output at the left, phases and machine at the right.


_SIDE_COLUMNS = 36
# Of the panel with the findings, and of a terminal that has room for it.
_FINDINGS_ROWS, _ROWS_FOR_FINDINGS = 7, 20
_SHOWN_FINDINGS = 3
_KEPT_LINES = 500
# Escape sequences other than colours: they would move our own cursor.
_MOVES = re.compile(r"\x1b(?:\[[0-9;?]*[A-HJKSTfhlnsu]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78cM])")


class Log:
    """The last lines a script printed, with `\\r` overwriting as a terminal does it."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._open = ""
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        with self._lock:
            *whole, self._open = (self._open + data.decode(errors="replace")).replace("\r\n", "\n").split("\n")
            self._lines.extend(_overwritten(line) for line in whole)
            if len(self._open) > 10_000:
                self._open = _overwritten(self._open)[-10_000:]

    def last(self, count: int) -> list[str]:
        with self._lock:
            lines = [*self._lines, _overwritten(self._open)] if self._open else list(self._lines)
        return lines[-count:]


def _overwritten(line: str) -> str:
    pieces = [piece for piece in _MOVES.sub("", line).split("\r") if piece]
    return pieces[-1] if pieces else ""


class Screen:
    """Draws on the terminal's alternate screen until closed."""

    def __init__(self, console: Console) -> None:
        self.log = Log()
        self._console = console
        self._live: Live | None = None

    def open(self) -> None:
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    @property
    def log_size(self) -> tuple[int, int]:
        """Columns and rows the script's output has."""
        width, height = self._console.size
        return max(20, width - _SIDE_COLUMNS - 4), max(3, height - 3)

    def show(self, figures: LiveFigures) -> None:
        if self._live is not None:
            self._live.update(screen_layout(figures, self.log.last(self.log_size[1]), self._console.size), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def screen_layout(figures: LiveFigures, lines: list[str], size: tuple[int, int]) -> Layout:
    """The page for one moment."""
    root = Layout()
    root.split_column(Layout(name="body"), Layout(Text(status_text(figures, size[0]), "reverse"), size=1))
    side = Layout(name="side", size=_SIDE_COLUMNS)
    report = figures.report if size[1] >= _ROWS_FOR_FINDINGS else None
    rows = max(1, size[1] - 3 - (0 if report is None else _FINDINGS_ROWS))
    log = Layout(Panel(_log(lines[-rows:]), title="output", title_align="left", border_style="dim"), name="log")
    root["body"].split_row(log if report is None else _with_findings(log, report), side)
    side.split_column(
        Layout(Panel(_phases(figures), title="where the step time goes", title_align="left", border_style="dim")),
        Layout(Panel(_machine(figures), title="machine", title_align="left", border_style="dim"), size=8),
    )
    return root


def _with_findings(log: Layout, report: RunReport) -> Layout:
    """The script's output, and below it what the run comes to so far."""
    both = Layout()
    panel = Panel(_findings(report), title="so far", title_align="left", border_style="dim")
    both.split_column(log, Layout(panel, size=_FINDINGS_ROWS))
    return both


def _findings(report: RunReport) -> Group:
    """The verdict, and the findings that would gain most."""
    style = "green" if report.verdict.healthy else "red"
    lines = [Text(text.clean(english(report.verdict.sentence)), style)]
    for finding in report.findings[:_SHOWN_FINDINGS]:
        line = Text.assemble((finding.code, "bold cyan"), f" {text.clean(finding.title)}", overflow="ellipsis")
        if finding.predicted_gain is not None:
            line.append(f"  ×{finding.predicted_gain.low:.2f} to ×{finding.predicted_gain.high:.2f}", "bold")
        line.no_wrap = True
        lines.append(line)
    if not report.findings and report.verdict.healthy:
        lines.append(Text("nothing worth fixing so far", "dim"))
    return Group(*lines)


def _log(lines: list[str]) -> Text:
    page = Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in lines)
    page.no_wrap, page.overflow = True, "crop"
    return page


def _phases(figures: LiveFigures) -> Group:
    if not figures.phases:
        return Group(Text("waiting for the first step", "dim"))
    return Group(*(_gauge(n, figures.phases[n], PHASE_STYLE[n]) for n in PHASES if figures.phases.get(n, 0) > 0))


def _machine(figures: LiveFigures) -> Group:
    util = None if figures.gpu_util_percent is None else figures.gpu_util_percent / 100
    cpu = Text("CPU".ljust(11))
    if figures.cpu_cores is None:
        cpu.append("not measured", "dim")
    else:
        cpu.append(f"{figures.cpu_cores:.1f} cores", "bold")
    return Group(
        _gauge("GPU", util, "green"),
        _gauge("starved", figures.starved_share, "red"),
        _gauge("power", figures.gpu_power_share, "yellow"),
        _gauge("GPU mem", figures.gpu_memory_share, "cyan"),
        cpu,
        _gauge("RAM", figures.memory_share, "cyan"),
    )


def _gauge(name: str, share: float | None, style: str) -> Text:
    line = Text(f"{name:<11}", no_wrap=True, overflow="crop")
    if share is None:
        return line.append("not measured", "dim")
    cells = _SIDE_COLUMNS - 4 - 11 - 5
    return line.append(text.bar(share, cells).ljust(cells), style).append(text.percent(share).rjust(5), "bold")
