"""The full-screen view of a running script: its output at the left, phases and machine at the right."""

from __future__ import annotations

import re
import threading
from collections import deque

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from flatout.records.phases import PHASES
from flatout.records.report import RunReport
from flatout.report import text
from flatout.report.live import LiveFigures, status_text
from flatout.report.page import PHASE_STYLE
from flatout.words import english

_SAY = {
    "output": "output",
    "phases": "where a step goes",
    "machine": "machine",
    "waiting": "waiting for the first step",
    "gpu": "GPU",
    "power": "power",
    "gpu_memory": "GPU mem",
    "starved": "starved",
    "cpu": "CPU",
    "cores": "{n:.1f} cores",
    "memory": "RAM",
    "none": "not measured",
    "so_far": "so far",
    "nothing": "nothing worth fixing so far",
}
_SIDE_COLUMNS = 36
# Of the panel with the findings, and of a terminal that has room for it.
_FINDINGS_ROWS, _SMALLEST_ROWS = 7, 20
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
            self._live.update(layout(figures, self.log.last(self.log_size[1]), self._console.size), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def layout(figures: LiveFigures, lines: list[str], size: tuple[int, int]) -> Layout:
    """The page for one moment."""
    root = Layout()
    root.split_column(Layout(name="body"), Layout(Text(status_text(figures, size[0]), "reverse"), size=1))
    side = Layout(name="side", size=_SIDE_COLUMNS)
    report = figures.report if size[1] >= _SMALLEST_ROWS else None
    rows = max(1, size[1] - 3 - (0 if report is None else _FINDINGS_ROWS))
    log = Layout(Panel(_log(lines[-rows:]), title=_SAY["output"], title_align="left", border_style="dim"), name="log")
    root["body"].split_row(log if report is None else _with_findings(log, report), side)
    side.split_column(
        Layout(Panel(_phases(figures), title=_SAY["phases"], title_align="left", border_style="dim")),
        Layout(Panel(_machine(figures), title=_SAY["machine"], title_align="left", border_style="dim"), size=8),
    )
    return root


def _with_findings(log: Layout, report: RunReport) -> Layout:
    """The script's output, and below it what the run comes to so far."""
    both = Layout()
    panel = Panel(_findings(report), title=_SAY["so_far"], title_align="left", border_style="dim")
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
        lines.append(Text(_SAY["nothing"], "dim"))
    return Group(*lines)


def _log(lines: list[str]) -> Text:
    page = Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in lines)
    page.no_wrap, page.overflow = True, "crop"
    return page


def _phases(figures: LiveFigures) -> Group:
    if not figures.phases:
        return Group(Text(_SAY["waiting"], "dim"))
    return Group(*(_gauge(n, figures.phases[n], PHASE_STYLE[n]) for n in PHASES if figures.phases.get(n, 0) > 0))


def _machine(figures: LiveFigures) -> Group:
    util = None if figures.gpu_util_percent is None else figures.gpu_util_percent / 100
    cpu = Text(f"{_SAY['cpu']:<11}")
    if figures.cpu_cores is None:
        cpu.append(_SAY["none"], "dim")
    else:
        cpu.append(_SAY["cores"].format(n=figures.cpu_cores), "bold")
    return Group(
        _gauge(_SAY["gpu"], util, "green"),
        _gauge(_SAY["starved"], figures.starved_share, "red"),
        _gauge(_SAY["power"], figures.gpu_power_share, "yellow"),
        _gauge(_SAY["gpu_memory"], figures.gpu_memory_share, "cyan"),
        cpu,
        _gauge(_SAY["memory"], figures.memory_share, "cyan"),
    )


def _gauge(name: str, share: float | None, style: str) -> Text:
    line = Text(f"{name:<11}", no_wrap=True, overflow="crop")
    if share is None:
        return line.append(_SAY["none"], "dim")
    cells = _SIDE_COLUMNS - 4 - 11 - 5
    return line.append(text.bar(share, cells).ljust(cells), style).append(text.percent(share).rjust(5), "bold")
