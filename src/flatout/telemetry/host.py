"""The machine as a whole: CPU in all and per core, memory, swap, pressure, /dev/shm, page faults."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from flatout.records.sample import CoreSample, HostSample
from flatout.telemetry.procfile import ProcFile, Rate

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of a cpu line in /proc/stat.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_SIZES = (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")


class HostSampler:
    """Reads /proc. `sample()` gives the machine; `cores` holds the per-core shares of that same reading."""

    def __init__(
        self, proc: Path = Path("/proc"), shm: Path = Path("/dev/shm"), clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.cores: tuple[CoreSample, ...] = ()
        self._clock = clock
        self._shm = shm
        self._stat, self._meminfo, self._vmstat, self._loadavg = (
            ProcFile(proc / name) for name in ("stat", "meminfo", "vmstat", "loadavg")
        )
        self._pressure = {name: ProcFile(proc / "pressure" / name) for name in ("cpu", "io", "memory")}
        self._last_cpu: dict[str, tuple[int, ...]] = {}
        self._faults, self._major_faults = Rate(), Rate()

    def sample(self) -> HostSample:
        now_s = self._clock()
        cpu, iowait, steal = self._cpu()
        memory = _memory(self._meminfo.read())
        swap, swap_free = memory.get(b"SwapTotal"), memory.get(b"SwapFree")
        shm_used, shm_total = disk_space(self._shm)
        vmstat, loadavg = self._vmstat.read(), self._loadavg.read()
        return HostSample(
            cpu_share=cpu,
            iowait_share=iowait,
            steal_share=steal,
            busiest_core_share=max((core.busy_share for core in self.cores), default=None),
            load_1min=float(loadavg.split()[0]) if loadavg else None,
            memory_available_bytes=memory.get(b"MemAvailable"),
            memory_total_bytes=memory.get(b"MemTotal"),
            swap_used_bytes=None if swap is None or swap_free is None else swap - swap_free,
            swap_total_bytes=swap,
            cpu_pressure_percent=_some_avg10(self._pressure["cpu"].read()),
            io_pressure_percent=_some_avg10(self._pressure["io"].read()),
            memory_pressure_percent=_some_avg10(self._pressure["memory"].read()),
            shm_used_bytes=shm_used,
            shm_total_bytes=shm_total,
            faults_per_s=self._faults.of(_counter(vmstat, b"pgfault"), now_s),
            major_faults_per_s=self._major_faults.of(_counter(vmstat, b"pgmajfault"), now_s),
        )

    def counted_s(self, cores: Iterable[int]) -> tuple[float, float] | None:
        """Busy and stolen seconds of these cores since the machine started; None where one of them is not listed."""
        times = [self._last_cpu.get(f"cpu{core}", ()) for core in cores]
        if not times or any(len(ticks) <= _STEAL for ticks in times):
            return None
        stolen = sum(ticks[_STEAL] for ticks in times)
        busy = sum(sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT] for ticks in times) - stolen
        return busy / _TICKS_PER_S, stolen / _TICKS_PER_S

    def _cpu(self) -> tuple[float | None, float | None, float | None]:
        """Busy, iowait and steal shares since the last call; sets `cores` on the way."""
        times = _cpu_times(self._stat.read())
        changes = {name: _change(self._last_cpu.get(name), now) for name, now in times.items()}
        self._last_cpu = times
        total = changes.pop("cpu", None)
        self.cores = tuple(
            CoreSample(int(name[3:]), _busy(change)) for name, change in changes.items() if change is not None
        )
        if total is None:
            return None, None, None
        ticks = sum(total)
        return _busy(total), total[_IOWAIT] / ticks, total[_STEAL] / ticks


def _cpu_times(stat: bytes | None) -> dict[str, tuple[int, ...]]:
    """Clock ticks by line name; the guest columns are left out, for they are counted in user already."""
    times = {}
    for line in (stat or b"").split(b"\n"):
        if not line.startswith(b"cpu"):
            break
        fields = line.split()
        times[fields[0].decode()] = tuple(map(int, fields[1:9]))
    return times


def _change(before: tuple[int, ...] | None, now: tuple[int, ...]) -> tuple[int, ...] | None:
    if before is None or len(now) <= _STEAL:
        return None
    # The kernel lets iowait and idle fall back a little at times.
    change = tuple(max(0, b - a) for a, b in zip(before, now, strict=False))
    return change if sum(change) else None


def _busy(change: tuple[int, ...]) -> float:
    total = sum(change)
    return (total - change[_IDLE] - change[_IOWAIT] - change[_STEAL]) / total


def _memory(meminfo: bytes | None) -> dict[bytes, float]:
    lines = (line.partition(b":") for line in (meminfo or b"").split(b"\n"))
    return {name: float(rest.split()[0]) * 1024 for name, _, rest in lines if name in _SIZES}


def _some_avg10(pressure: bytes | None) -> float | None:
    if not pressure or not pressure.startswith(b"some avg10="):
        return None
    return float(pressure[len(b"some avg10=") :].split(None, 1)[0])


def _counter(vmstat: bytes | None, name: bytes) -> float | None:
    _, found, after = (b"\n" + (vmstat or b"")).partition(b"\n" + name + b" ")
    return float(after.split(None, 1)[0]) if found else None


def disk_space(path: Path) -> tuple[float | None, float | None]:
    """Bytes used, and bytes in all."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None, None
    return float((stat.f_blocks - stat.f_bfree) * stat.f_frsize), float(stat.f_blocks * stat.f_frsize)
