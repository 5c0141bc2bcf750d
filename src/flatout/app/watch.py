"""`flatout watch`: monitor GPUs and host of anything already running, or summarise a CSV of such readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from flatout.errors import FlatoutError
from flatout.launch.terminal import write_stderr
from flatout.records.sample import MonitorSummary, Tick
from flatout.report.gpu_csv import HEADER, CsvFile, csv_lines
from flatout.report.monitor import live_view, plain_lines, print_summary, summary_json, verdict_line
from flatout.telemetry.monitor import MonitorTotals, watch_ticks

if TYPE_CHECKING:
    from flatout.launch.metrics_server import MetricsServer

_Show = Callable[[Tick], None]


@dataclass(frozen=True, slots=True)
class WatchRequest:
    interval_s: float = 1.0
    duration_s: float | None = None
    pid: int | None = None
    csv_path: Path | None = None
    read_path: Path | None = None
    as_json: bool = False
    metrics_port: int | None = None
    quiet: bool = False


def run_watch(asked: WatchRequest) -> None:
    if asked.read_path is not None:
        if any(given is not None for given in (asked.pid, asked.csv_path, asked.duration_s, asked.metrics_port)):
            raise FlatoutError("--read summarises a file; leave out --pid, --csv, --duration and --metrics-port")
        summary = _read(asked.read_path)
    else:
        _check(asked)
        summary = _watch(asked)
    if asked.as_json:
        print(summary_json(summary), flush=True)
    elif asked.quiet:
        print(verdict_line(summary), flush=True)
    else:
        print_summary(summary, Console(soft_wrap=True))


def _check(asked: WatchRequest) -> None:
    for name, value in (("--interval", asked.interval_s), ("--duration", asked.duration_s)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise FlatoutError(f"{name} must be above 0, got {value:g}")
    if asked.pid is not None and not Path(f"/proc/{asked.pid}").exists():
        raise FlatoutError(f"--pid {asked.pid}: there is no such process; see ps -ef for the training script's number")


def _read(path: Path) -> MonitorSummary:
    file = CsvFile(path)
    # The file may come from another machine: this one's cores are not its.
    totals = MonitorTotals(with_host_limits=False)
    for tick in file.ticks():
        totals.add(tick)
    return totals.summary(file.skipped_lines)


def _watch(asked: WatchRequest) -> MonitorSummary:
    totals, is_silent = MonitorTotals(asked.pid), asked.as_json or asked.quiet
    with ExitStack() as stack:
        shows: list[_Show] = [totals.add]
        if asked.metrics_port is not None:
            shows.append(stack.enter_context(closing(_exposed(asked.metrics_port, is_silent))).on_tick)
        if asked.csv_path is not None:
            shows.insert(1, stack.enter_context(_csv(asked.csv_path)))
        if not is_silent:
            shows.append(stack.enter_context(_display()))
        try:
            for tick in watch_ticks(asked.interval_s, asked.duration_s, asked.pid):
                for show in shows:
                    show(tick)
        except KeyboardInterrupt:
            # The usual way to end a watch, wherever it strikes.
            pass
    return totals.summary()


def _exposed(port: int, is_silent: bool) -> MetricsServer:
    from flatout.launch.metrics_server import MetricsServer

    exposed = MetricsServer(port)
    if not is_silent:
        write_stderr(f"flatout: metrics at {exposed.address}\n")
    exposed.start()
    return exposed


@contextmanager
def _csv(path: Path) -> Iterator[_Show]:
    try:
        # Unbuffered: each line can be read at once, and nothing is left to fail when the file is closed.
        file = path.open("wb", buffering=0)
        file.write(f"{HEADER}\n".encode())
    except OSError as error:
        raise FlatoutError(f"--csv {path}: cannot be written: {error.strerror}") from error
    is_full = False

    def write(tick: Tick) -> None:
        nonlocal is_full
        if is_full:
            return
        try:
            file.write("".join(f"{line}\n" for line in csv_lines(tick, datetime.now())).encode())
        except OSError as error:
            is_full = True
            write_stderr(f"flatout: --csv {path}: {error.strerror}; watching goes on without it\n")

    with file:
        yield write


@contextmanager
def _display() -> Iterator[_Show]:
    console = Console()
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda tick: live.update(live_view(tick), refresh=True)
    else:
        yield lambda tick: print("\n".join(plain_lines(tick)), flush=True)
