"""`flatout watch`: monitor GPUs and host of anything already running; mean ± spread and a verdict at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from flatout.errors import FlatoutError
from flatout.records.monitor import MonitorSummary
from flatout.records.sample import Tick
from flatout.report.gpu_csv import HEADER, CsvFile, csv_lines
from flatout.report.monitor import live_view, plain_lines, print_summary, summary_json, verdict_line
from flatout.telemetry.monitor import MonitorTotals, watch_ticks

_Show = Callable[[Tick], None]


@click.command("watch")
@click.option("--interval", "interval_s", type=float, default=1.0, show_default=True, help="Seconds between readings.")
@click.option("--duration", "duration_s", type=float, help="Stop after so many seconds (default: until Ctrl-C).")
@click.option("--pid", type=int, help="Watch this process and its children too; end with it.")
@click.option(
    "--csv", "csv_path", type=click.Path(path_type=Path), help="Also write nvidia-smi's CSV, with more columns."
)
@click.option("--read", "read_path", type=click.Path(path_type=Path), help="Summarise such a CSV instead of watching.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, and nothing else.")
@click.option("--metrics-port", type=int, metavar="N", help="Figures for Prometheus at 127.0.0.1:N (0: any free port).")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
def watch(
    interval_s: float,
    duration_s: float | None,
    pid: int | None,
    csv_path: Path | None,
    read_path: Path | None,
    as_json: bool,
    metrics_port: int | None,
    quiet: bool,
) -> None:
    """Monitor the GPUs and the host of anything already running.

    Utilisation says that some kernel ran, however small; so the verdict weighs its spread, power and SM activity too.
    """
    if read_path is not None:
        if any(given is not None for given in (pid, csv_path, duration_s, metrics_port)):
            raise FlatoutError("--read summarises a file; leave out --pid, --csv, --duration and --metrics-port")
        summary = _read(read_path)
    else:
        _check(interval_s, duration_s, pid)
        is_silent = as_json or quiet
        with _exposed(metrics_port, is_silent) as expose:
            summary = _watch(interval_s, duration_s, pid, csv_path, expose, is_silent=is_silent)
    if as_json:
        click.echo(summary_json(summary))
    elif quiet:
        click.echo(verdict_line(summary))
    else:
        print_summary(summary, Console(soft_wrap=True))


def _check(interval_s: float, duration_s: float | None, pid: int | None) -> None:
    for name, value in (("--interval", interval_s), ("--duration", duration_s)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise FlatoutError(f"{name} must be above 0, got {value:g}")
    if pid is not None and not Path(f"/proc/{pid}").exists():
        raise FlatoutError(f"--pid {pid}: there is no such process; see ps -ef for the training script's number")


def _read(path: Path) -> MonitorSummary:
    file = CsvFile(path)
    # The file may come from another machine: this one's cores are not its.
    gathering = MonitorTotals(with_host_limits=False)
    for tick in file.ticks():
        gathering.add(tick)
    return gathering.summary(file.skipped_lines)


def _watch(
    interval_s: float,
    duration_s: float | None,
    pid: int | None,
    csv_path: Path | None,
    expose: _Show,
    is_silent: bool,
) -> MonitorSummary:
    gathering = MonitorTotals(pid)
    with _csv(csv_path) as write, _display(is_silent) as show:
        try:
            for tick in watch_ticks(interval_s, duration_s, pid):
                gathering.add(tick)
                write(tick)
                expose(tick)
                show(tick)
        except KeyboardInterrupt:
            # The usual way to end a watch, wherever it strikes.
            pass
    return gathering.summary()


@contextmanager
def _exposed(port: int | None, is_silent: bool) -> Iterator[_Show]:
    if port is None:
        yield lambda _: None
        return
    from flatout.launch.metrics_server import MetricsServer

    exposed = MetricsServer(port)
    if not is_silent:
        click.echo(f"flatout: metrics at {exposed.address}", err=True)
    exposed.start()
    try:
        yield exposed.on_tick
    finally:
        exposed.close()


@contextmanager
def _csv(path: Path | None) -> Iterator[_Show]:
    if path is None:
        yield lambda _: None
        return
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
            click.echo(f"flatout: --csv {path}: {error.strerror}; watching goes on without it", err=True)

    with file:
        yield write


@contextmanager
def _display(is_silent: bool) -> Iterator[_Show]:
    console = Console()
    if is_silent:
        yield lambda _: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda tick: live.update(live_view(tick), refresh=True)
    else:
        yield lambda tick: click.echo("\n".join(plain_lines(tick)))
