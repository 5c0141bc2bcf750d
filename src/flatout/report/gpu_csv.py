"""The CSV of `nvidia-smi --query-gpu=… --format=csv -l 1`, written with more columns behind, and read back.

A value that was not measured is `[N/A]`, as nvidia-smi writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flatout.errors import FlatoutError
from flatout.records.sample import GpuReading, GpuSample, HostSample, ProcessSample, Role, Tick

_MIB = 1 << 20
_NOT_MEASURED = "[N/A]"
_TIMESTAMP = "%Y/%m/%d %H:%M:%S.%f"
# Two lines closer than this were printed in one round of nvidia-smi: they are two GPUs, not two moments.
_ROUND_S = 0.05


@dataclass(frozen=True, slots=True)
class _Column:
    """`field` is of GpuSample, or for the last ones a name of ours; a file's value times `scale` is the record's."""

    header: str
    unit: str
    field: str
    scale: float = 1.0
    digits: int = 0


# The first four, behind the timestamp, are the logger's that so many guides recommend; their order is fixed.
_GPU_COLUMNS = (
    _Column("utilization.gpu", "%", "util_percent"),
    _Column("utilization.memory", "%", "memory_util_percent"),
    _Column("memory.used", "MiB", "memory_used_bytes", _MIB),
    _Column("memory.total", "MiB", "memory_total_bytes", _MIB),
    _Column("index", "", "gpu"),
    _Column("power.draw", "W", "power_w", digits=2),
    _Column("power.limit", "W", "power_limit_w", digits=2),
    _Column("temperature.gpu", "", "temperature_c"),
    _Column("clocks.sm", "MHz", "sm_clock_mhz"),
    _Column("clocks.mem", "MHz", "memory_clock_mhz"),
    _Column("sm.active", "%", "sm_active_share", 0.01, 1),
    _Column("tensor.active", "%", "tensor_active_share", 0.01, 1),
    _Column("dram.active", "%", "dram_active_share", 0.01, 1),
    _Column("own.memory", "MiB", "own_memory_bytes", _MIB),
)
_INDEX_PLACE = 4
_HOST_COLUMNS = (
    _Column("cpu", "%", "cpu_share", 0.01, 1),
    _Column("iowait", "%", "iowait_share", 0.01, 1),
    _Column("host.memory.available", "MiB", "memory_available_bytes", _MIB),
    _Column("host.memory.total", "MiB", "memory_total_bytes", _MIB),
)
_PROCESS_COLUMNS = (
    _Column("cpu.main", "%", "main", 0.01, 1),
    _Column("cpu.worker", "%", "worker", 0.01, 1),
    _Column("workers", "", "workers"),
)
_ALL = (*_GPU_COLUMNS, *_HOST_COLUMNS, *_PROCESS_COLUMNS)
HEADER = ", ".join(["timestamp", *(f"{c.header} [{c.unit}]" if c.unit else c.header for c in _ALL)])
# Other names under which nvidia-smi is asked for the same thing.
_ALIASES = {"power.draw.average": "power.draw", "enforced.power.limit": "power.limit"}
_IDENTITY = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")


def csv_lines(tick: Tick, when: datetime) -> list[str]:
    """One line a GPU; without a GPU one line, for the host's part."""
    samples: tuple[GpuSample | None, ...] = tick.gpu.gpus if tick.gpu is not None and tick.gpu.gpus else (None,)
    stamp = when.strftime(_TIMESTAMP)[:-3]
    host = [_written(column, getattr(tick.host, column.field, None)) for column in _HOST_COLUMNS]
    processes = _process_values(tick)
    tail = host + [_written(column, processes.get(column.field)) for column in _PROCESS_COLUMNS]
    indices = {facts.gpu: facts.nvml_index for facts in tick.gpu.facts} if tick.gpu is not None else {}
    lines = []
    for sample in samples:
        values = [_written(column, getattr(sample, column.field, None)) for column in _GPU_COLUMNS]
        if sample is not None and indices.get(sample.gpu) is not None:
            # The column bears nvidia-smi's name, so it holds nvidia-smi's number.
            values[_INDEX_PLACE] = str(indices[sample.gpu])
        lines.append(", ".join([stamp, *values, *tail]))
    return lines


def _written(column: _Column, value: float | None) -> str:
    if value is None:
        return _NOT_MEASURED
    text = f"{value / column.scale:.{column.digits}f}"
    return f"{text} {column.unit}" if column.unit else text


def _process_values(tick: Tick) -> dict[str, float]:
    values: dict[str, float] = {}
    roles: tuple[Role, ...] = ("main", "worker")
    for role in roles:
        shares = [p.cpu_share for p in tick.processes if p.role == role and p.cpu_share is not None]
        if shares:
            values[role] = sum(shares) / len(shares)
    if tick.processes:
        values["workers"] = float(sum(p.role == "worker" for p in tick.processes))
    return values


class CsvFile:
    """Reads a file back as ticks. Lines that make no sense are skipped and counted in `skipped_lines`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _decoded(path).splitlines()
        self._names: list[str] = []
        self._gpu_numbers: dict[str, int] = {}
        self._last_s: float | None = None
        self._place = 0
        self.skipped_lines = 0

    def ticks(self) -> Iterator[Tick]:
        found = False
        for line in self._lines:
            fields = [field.strip() for field in line.split(",")]
            if not line.strip() or self._take_header(fields):
                continue
            tick = self._tick(fields)
            if tick is None:
                self.skipped_lines += 1
            else:
                found = True
                yield tick
        if not found:
            raise FlatoutError(
                f"{self._path} holds no line that can be read: expected the columns "
                "timestamp, utilization.gpu [%], … of nvidia-smi --query-gpu=… --format=csv"
            )

    def _take_header(self, fields: list[str]) -> bool:
        if fields[0].strip("\ufeff") != "timestamp" and "utilization.gpu" not in ",".join(fields):
            return False
        names = [re.sub(r"\s*\[.*\]$", "", field.strip("\ufeff")) for field in fields]
        self._names = [_ALIASES.get(name, name) for name in names]
        return True

    def _tick(self, fields: list[str]) -> Tick | None:
        # A file made with noheader has the columns of the usual query.
        names = self._names or ["timestamp", *(column.header for column in _GPU_COLUMNS[:4])]
        if len(fields) != len(names):
            return None
        row = dict(zip(names, fields, strict=True))
        t_s = _seconds(row.get("timestamp"))
        values = {c: _read(c, row[c.header]) for c in _ALL if c.header in row}
        if t_s is None or any(value is _BROKEN for value in values.values()):
            return None
        sample = GpuSample(gpu=self._gpu_of(row, t_s), **_some(values, _GPU_COLUMNS, without="gpu"))
        has_gpu = any(values.get(column) is not None for column in _GPU_COLUMNS)
        return Tick(
            t_s,
            gpu=GpuReading(t_s, (sample,) if has_gpu else ()),
            host=HostSample(**_some(values, _HOST_COLUMNS)),
            processes=_processes(_some(values, _PROCESS_COLUMNS)),
        )

    def _gpu_of(self, row: dict[str, str], t_s: float) -> int:
        """By its identity where the file has one, else by its place in the round of lines printed together."""
        self._place = self._place + 1 if self._last_s is not None and t_s - self._last_s < _ROUND_S else 0
        self._last_s = t_s
        identity = next((row[name] for name in _IDENTITY if name in row and row[name] != _NOT_MEASURED), None)
        if identity is None:
            return self._place
        if identity.isdigit():
            return int(identity)
        return self._gpu_numbers.setdefault(identity, len(self._gpu_numbers))


_BROKEN = float("-inf")


def _read(column: _Column, text: str) -> float | None:
    """The record's value; None for nvidia-smi's many ways to say "none"; _BROKEN for what is no number."""
    if text.startswith("[") or text in ("N/A", ""):
        return None if text else _BROKEN
    number = text.removesuffix(column.unit).strip() if column.unit else text
    if not re.fullmatch(r"\d+(\.\d+)?", number):
        return _BROKEN
    is_impossible = column.header.startswith("utilization") and float(number) > 100
    return _BROKEN if is_impossible else float(number) * column.scale


def _some(
    values: dict[_Column, float | None], columns: tuple[_Column, ...], without: str | None = None
) -> dict[str, float | None]:
    return {c.field: values[c] for c in columns if c in values and c.field != without}


def _processes(values: dict[str, float | None]) -> tuple[ProcessSample, ...]:
    """Stand-ins with the mean share of each role, so that the summary is the one of the living tree."""
    main, worker, workers = (values.get(name) for name in ("main", "worker", "workers"))
    if workers is None:
        return ()
    return (
        ProcessSample(0, "main", main),
        *(ProcessSample(number, "worker", worker) for number in range(1, int(workers) + 1)),
    )


def _seconds(stamp: str | None) -> float | None:
    for form in (_TIMESTAMP, "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S"):
        try:
            return datetime.strptime(stamp or "", form).timestamp()
        except ValueError:
            continue
    return None


def _decoded(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FlatoutError(f"cannot read {path}: {error.strerror or error}") from error
    # PowerShell's ">" writes UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace")
