"""What `flatout watch` shows: a live table, plain lines where there is no terminal, and the closing summary."""

from __future__ import annotations

import json

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flatout.records.sample import GpuSample, GpuSummary, HostSummary, MonitorSummary, Spread, Tick, throttle_names
from flatout.words import english
from flatout.words.codec import encode

_GIB = 1 << 30
_NONE = "–"
_STYLES = {"on target": "green", "light": "yellow", "unsteady": "yellow", "room": "yellow", "idle": "red"}
_LIVE_PROCESSES = 12


def live_view(tick: Tick) -> RenderableType:
    """The whole picture of one moment, for a terminal."""
    parts: list[RenderableType] = []
    if tick.gpu is not None:
        if tick.gpu.gpus:
            names = {facts.gpu: facts.name for facts in tick.gpu.facts}
            parts.append(_gpu_table(tick.gpu.gpus, names))
        if tick.gpu.reason:
            parts.append(Text(english(tick.gpu.reason), style="yellow"))
    parts.append(Text(_host_line(tick)))
    if tick.processes:
        parts.append(_process_table(tick))
    return Group(*parts)


def _gpu_table(samples: tuple[GpuSample, ...], names: dict[int, str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("GPU", "util", "memory GiB", "power W", "°C", "SM", "tensor", "MHz", "throttled by"):
        table.add_column(heading, justify="left" if heading in ("GPU", "throttled by") else "right")
    for sample in samples:
        table.add_row(
            f"{sample.gpu} {names.get(sample.gpu, '')}".strip(),
            _bar(sample.util_percent),
            _of(sample.memory_used_bytes, sample.memory_total_bytes, _GIB, 1),
            _of(sample.power_w, sample.power_limit_w, 1, 0),
            _number(sample.temperature_c),
            _share(sample.sm_active_share),
            _share(sample.tensor_active_share),
            _number(sample.sm_clock_mhz),
            ", ".join(throttle_names(sample.throttle_bits)) or _NONE,
        )
    return table


def _process_table(tick: Tick) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("pid", "role", "CPU of a core", "RSS GiB", "PSS GiB", "read MB/s", "threads"):
        table.add_column(heading, justify="left" if heading == "role" else "right")
    busiest = sorted(tick.processes, key=lambda p: (p.role != "main", -(p.cpu_share or 0.0)))
    for process in busiest[:_LIVE_PROCESSES]:
        table.add_row(
            str(process.pid),
            process.role,
            _share(process.cpu_share),
            _number(process.rss_bytes, _GIB, 2),
            _number(process.pss_bytes, _GIB, 2),
            _number(process.read_bytes_per_s, 1e6, 1),
            _number(process.threads),
        )
    if len(busiest) > _LIVE_PROCESSES:
        table.caption = f"and {len(busiest) - _LIVE_PROCESSES} more"
    return table


def plain_lines(tick: Tick) -> list[str]:
    """One line a GPU and one for the host: for a pipe, a log file, a dumb terminal."""
    gpus = tick.gpu.gpus if tick.gpu is not None else ()
    lines = [
        f"GPU {s.gpu}: util {_number(s.util_percent)}%, "
        f"memory {_of(s.memory_used_bytes, s.memory_total_bytes, _GIB, 1)} GiB, "
        f"power {_of(s.power_w, s.power_limit_w, 1, 0)} W, {_number(s.temperature_c)} °C, "
        f"SM {_share(s.sm_active_share)}"
        for s in gpus
    ]
    return [*lines, _host_line(tick)]


def _host_line(tick: Tick) -> str:
    host = tick.host
    if host is None:
        return "host: not measured"
    used = None
    if host.memory_available_bytes is not None and host.memory_total_bytes is not None:
        used = host.memory_total_bytes - host.memory_available_bytes
    line = (
        f"host: CPU {_share(host.cpu_share)}, busiest core {_share(host.busiest_core_share)}, "
        f"iowait {_share(host.iowait_share)}, memory {_of(used, host.memory_total_bytes, _GIB, 1)} GiB"
    )
    if tick.disks:
        read = sum(disk.read_bytes_per_s or 0.0 for disk in tick.disks)
        line += f", disk read {read / 1e6:.0f} MB/s"
    main = [p.cpu_share for p in tick.processes if p.role == "main" and p.cpu_share is not None]
    workers = [p.cpu_share for p in tick.processes if p.role == "worker" and p.cpu_share is not None]
    if main:
        line += f", main {_share(sum(main) / len(main))}"
    if workers:
        line += f", {len(workers)} workers {_share(sum(workers) / len(workers))} each"
    return line


def print_summary(summary: MonitorSummary, console: Console) -> None:
    """Means and spreads, then the verdict and what else deserves a line."""
    console.print(f"watched {_seconds(summary.duration_s)}, {_count(summary.readings, 'reading')}", highlight=False)
    for gpu in summary.gpus:
        _print_gpu(gpu, console)
    if not summary.gpus:
        console.print(english(summary.reason or "GPU not measured"), highlight=False)
    elif summary.reason:
        console.print(english(summary.reason), style="yellow", highlight=False)
    _print_host(summary.host, console)
    for note in summary.notes:
        console.print(f"- {english(note)}", highlight=False, markup=False)
    if summary.skipped_lines:
        skipped = _count(summary.skipped_lines, "line")
        console.print(f"{skipped} could not be read: skipped", style="yellow", highlight=False)
    if any(gpu.status in ("light", "unsteady", "room", "idle") for gpu in summary.gpus):
        console.print("To see where the step time goes: flatout run train.py", highlight=False)


def verdict_line(summary: MonitorSummary) -> str:
    """The one line that is left under --quiet."""
    if not summary.gpus:
        return english(summary.reason or "GPU not measured")
    return "; ".join(f"GPU {gpu.gpu}: {gpu.status}: {english(gpu.sentence)}" for gpu in summary.gpus)


def _print_gpu(gpu: GpuSummary, console: Console) -> None:
    console.print(f"GPU {gpu.gpu}{' ' + gpu.name if gpu.name else ''}", style="bold", highlight=False, markup=False)
    fluctuation = "" if gpu.fluctuation_points is None else f", fluctuation {gpu.fluctuation_points:.0f} points"
    _print_rows(
        console,
        {
            "utilisation": _plus_minus(gpu.util_percent, fluctuation, "%"),
            "memory": _memory(gpu),
            "power": _plus_minus(gpu.power_w, f" ({_percent_of(gpu.power_share)} of the limit)", " W"),
            "temperature": None if gpu.temperature_c is None else f"{gpu.temperature_c.high:.0f} °C at most",
            "SM active": _plus_minus(gpu.sm_active_share, "", "%", 100),
            "tensor active": _plus_minus(gpu.tensor_active_share, "", "%", 100),
        },
    )
    console.print(Text(f"  {gpu.status}: ", style=_STYLES.get(gpu.status, "")) + Text(english(gpu.sentence), style=""))


def _print_rows(console: Console, rows: dict[str, str | None]) -> None:
    """Those that were measured."""
    for name, value in rows.items():
        if value is not None:
            console.print(f"  {name:<14}{value}", highlight=False)


def _memory(gpu: GpuSummary) -> str | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    peak = gpu.memory_used_bytes.high
    own = "" if gpu.own_memory_bytes is None else f", own {gpu.own_memory_bytes.high / _GIB:.1f} GiB"
    total = gpu.memory_total_bytes
    return f"{peak / _GIB:.1f} of {total / _GIB:.1f} GiB at most ({peak / total:.0%}){own}"


def _print_host(host: HostSummary, console: Console) -> None:
    cores = "" if host.cpus_allowed is None else f" ({host.cpus_allowed:g} cores allowed)"
    rows = {
        "CPU": _plus_minus(host.cpu_share, cores, "%", 100),
        "main process": _plus_minus(host.main_cpu_share, " of a core", "%", 100),
        "workers": _plus_minus(host.worker_cpu_share, f" of a core each, {host.workers} at most", "%", 100),
        "iowait": _plus_minus(host.iowait_share, "", "%", 100),
        "memory": None if host.memory_used_share is None else f"{host.memory_used_share.high:.0%} at most",
    }
    if any(value is not None for value in rows.values()):
        console.print("host", style="bold", highlight=False)
    _print_rows(console, rows)


def summary_json(summary: MonitorSummary) -> str:
    return json.dumps({"schema": 1, **encode(summary)}, indent=2, allow_nan=False)


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.1f} s" if duration_s < 10 else f"{duration_s:.0f} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plus_minus(spread: Spread | None, behind: str, unit: str, scale: float = 1) -> str | None:
    return None if spread is None else f"{spread.mean * scale:.0f}{unit} ± {spread.std * scale:.0f}{behind}"


def _percent_of(spread: Spread | None) -> str:
    return _NONE if spread is None else f"{spread.mean:.0%}"


def _bar(percent: float | None) -> str:
    if percent is None:
        return _NONE
    full = round(percent / 10)
    return f"{'█' * full}{'░' * (10 - full)} {percent:3.0f}%"


def _share(share: float | None) -> str:
    return _NONE if share is None else f"{share:.0%}"


def _number(value: float | None, scale: float = 1, digits: int = 0) -> str:
    return _NONE if value is None else f"{value / scale:.{digits}f}"


def _of(used: float | None, total: float | None, scale: float, digits: int) -> str:
    return f"{_number(used, scale, digits)}/{_number(total, scale, digits)}"
