"""Watching a machine from outside: ticks in, a summary with a verdict out, in memory that does not grow."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Iterator, Mapping, Sequence

from flatout.records.message import Message, message
from flatout.records.sample import (
    GpuSample,
    GpuStatus,
    GpuSummary,
    HostSummary,
    MonitorSummary,
    Spread,
    Tick,
    throttle_names,
)
from flatout.telemetry.cgroup import cpus_allowed
from flatout.telemetry.sampling import Sampling, SamplingOptions

_UTIL_TARGET_PERCENT = 85
_UTIL_ROOM_PERCENT = 60
_UTIL_IDLE_PERCENT = 5
_FLUCTUATION_TARGET_POINTS = 10
_LIGHT_SHARE = 0.5
_FEWEST_READINGS = 5
# Figures of the machine that have the same name in a sample and in the summary.
_OF_HOST = ("cpu_share", "iowait_share", "memory_used_share", "io_pressure_percent")
NO_COMPLAINT: tuple[GpuStatus, ...] = ("on target", "too short", "not measured")


def watch_ticks(interval_s: float, duration_s: float | None, pid: int | None) -> Iterator[Tick]:
    """Ticks as they come, until the duration is over or the watched process has ended."""
    interval_s = interval_s if duration_s is None else min(interval_s, duration_s)
    ticks: queue.Queue[Tick] = queue.Queue()
    # The first tick is only the start of the rates: nothing has been measured between it and an earlier one.
    is_first = True
    started_s = time.perf_counter()
    with Sampling(pid, interval_s, ticks.put, SamplingOptions(stretch=False)):
        while True:
            tick = ticks.get()
            if pid is not None and not tick.processes:
                return
            if not is_first:
                yield tick
            is_first = False
            if duration_s is not None and tick.t_s - started_s > duration_s - interval_s / 2:
                return


class MonitorTotals:
    """Takes ticks one by one and can tell the summary at any time."""

    def __init__(self, pid: int | None = None, with_host_limits: bool = True) -> None:
        self._pid = pid
        self._with_host_limits = with_host_limits
        self._gpus: dict[int, _Gpu] = {}
        self._host = {name: _Running() for name in (*_OF_HOST, "main_cpu_share", "worker_cpu_share")}
        self._workers: int | None = None
        self._first_s: float | None = None
        self._last_s = 0.0
        self._readings = 0
        self._reason: Message | None = None

    def add(self, tick: Tick) -> None:
        self._first_s = tick.t_s if self._first_s is None else self._first_s
        self._last_s = tick.t_s
        self._readings += 1
        if tick.gpu is not None:
            self._reason = tick.gpu.reason
            names = {facts.gpu: facts.name for facts in tick.gpu.facts}
            for sample in tick.gpu.gpus if tick.gpu.fresh else ():
                self._gpus.setdefault(sample.gpu, _Gpu(names.get(sample.gpu))).add(sample)
        self._add_host(tick)

    def _add_host(self, tick: Tick) -> None:
        for name in _OF_HOST if tick.host is not None else ():
            self._host[name].add(getattr(tick.host, name))
        for process in tick.processes:
            if process.role != "other":
                self._host[f"{process.role}_cpu_share"].add(process.cpu_share)
        if tick.processes:
            workers = sum(process.role == "worker" for process in tick.processes)
            self._workers = max(self._workers or 0, workers)

    def summary(self, skipped_lines: int = 0) -> MonitorSummary:
        gpus = tuple(gpu.summary(number) for number, gpu in sorted(self._gpus.items()))
        cores = cpus_allowed(self._pid) if self._with_host_limits else None
        spreads = {name: running.spread() for name, running in self._host.items()}
        host = HostSummary(**spreads, workers=self._workers, cpus_allowed=cores)
        duration_s = self._last_s - (self._first_s or 0.0) if self._readings else 0.0
        return MonitorSummary(duration_s, self._readings, gpus, host, notes_of(gpus, host), self._reason, skipped_lines)


class _Running:
    """Mean, spread and extremes of a stream of readings (Welford), without keeping them."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = self._squares = 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        self._count += 1
        step = value - self._mean
        self._mean += step / self._count
        self._squares += step * (value - self._mean)
        self._low, self._high = min(self._low, value), max(self._high, value)

    def spread(self) -> Spread | None:
        if not self._count:
            return None
        return Spread(self._mean, math.sqrt(self._squares / self._count), self._low, self._high, self._count)


class _Gpu:
    """One GPU's running figures; utilisation is a percentage, so a histogram of 101 bins gives its exact band."""

    _PLAIN = (
        *("util_percent", "memory_util_percent", "memory_used_bytes", "own_memory_bytes", "power_w", "temperature_c"),
        *("sm_active_share", "tensor_active_share", "dram_active_share"),
    )

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._figures = {figure: _Running() for figure in (*self._PLAIN, "power_share")}
        self._bins = [0] * 101
        self._memory_total_bytes: float | None = None
        self._throttled: dict[str, int] = {}
        self._throttle_readings = 0

    def add(self, sample: GpuSample) -> None:
        for figure in self._PLAIN:
            self._figures[figure].add(getattr(sample, figure))
        if sample.power_w is not None and sample.power_limit_w:
            self._figures["power_share"].add(sample.power_w / sample.power_limit_w)
        if sample.util_percent is not None:
            self._bins[min(100, max(0, round(sample.util_percent)))] += 1
        if sample.memory_total_bytes is not None:
            self._memory_total_bytes = sample.memory_total_bytes
        if sample.throttle_bits is not None:
            self._throttle_readings += 1
            for name in throttle_names(sample.throttle_bits):
                self._throttled[name] = self._throttled.get(name, 0) + 1

    def summary(self, number: int) -> GpuSummary:
        spreads = {figure: running.spread() for figure, running in self._figures.items()}
        counted = sum(self._bins)
        fluctuation = float(self._percentile(0.9 * counted) - self._percentile(0.1 * counted)) if counted else None
        status, sentence = judge_gpu(spreads, fluctuation)
        return GpuSummary(
            gpu=number,
            name=self._name,
            status=status,
            sentence=sentence,
            fluctuation_points=fluctuation,
            memory_total_bytes=self._memory_total_bytes,
            throttled={name: count / self._throttle_readings for name, count in self._throttled.items()},
            **spreads,
        )

    def _percentile(self, rank: float) -> int:
        seen = 0
        for percent, count in enumerate(self._bins):
            seen += count
            if seen >= rank and seen:
                return percent
        return 100


# What the figures of a watch mean, in words: against the usual targets, and honest about what they cannot say.
# Utilisation counts any kernel, however small, so a high figure is checked against power and SM activity.


def judge_gpu(spreads: Mapping[str, Spread | None], fluctuation: float | None) -> tuple[GpuStatus, Message]:
    """One status and one sentence from utilisation, its fluctuation, power and SM activity."""
    util = spreads["util_percent"]
    if util is None or fluctuation is None:
        return "not measured", message("monitor.not_measured")
    mean = util.mean
    if util.count < _FEWEST_READINGS:
        return "too short", message("monitor.too_short", util=mean, readings=util.count)
    if mean < _UTIL_IDLE_PERCENT:
        return "idle", message("monitor.nearly_idle", util=mean)
    if mean < _UTIL_ROOM_PERCENT:
        return "idle", message("monitor.idle", util=mean, idle=100 - mean)
    if mean < _UTIL_TARGET_PERCENT:
        return "room", message("monitor.room", util=mean)
    light = _light(spreads)
    if light is not None:
        return "light", message("monitor.light", util=mean, why=light)
    if fluctuation >= _FLUCTUATION_TARGET_POINTS:
        return "unsteady", message("monitor.unsteady", util=mean, points=fluctuation)
    return "on target", message("monitor.on_target", util=mean)


def _light(spreads: Mapping[str, Spread | None]) -> Message | None:
    """Why a busy GPU is not a fully used one; None when power and SM activity agree, or are not measured."""
    power, active = spreads["power_share"], spreads["sm_active_share"]
    low = []
    if power is not None and power.mean < _LIGHT_SHARE:
        low.append(message("monitor.low_power", share=power.mean * 100))
    if active is not None and active.mean < _LIGHT_SHARE:
        low.append(message("monitor.low_sm", share=active.mean * 100))
    return message("monitor.both", first=low[0], second=low[1]) if len(low) == 2 else low[0] if low else None


def notes_of(gpus: Sequence[GpuSummary], host: HostSummary) -> tuple[Message, ...]:
    """What else deserves a line: memory, heat, throttling, a busy or starved host."""
    # A main process that waits for a busy GPU spins at a full core: that is no news.
    is_gpu_busy = any(gpu.status in ("on target", "light", "unsteady") for gpu in gpus)
    return tuple(note for gpu in gpus for note in _gpu_notes(gpu)) + tuple(_host_notes(host, is_gpu_busy))


def _gpu_notes(gpu: GpuSummary) -> Iterator[Message]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is not None and total:
        peak = used.high / total
        if peak >= 0.95:
            yield message("monitor.memory_nearly_full", gpu=gpu.gpu, peak=peak)
        elif peak < 0.5 and gpu.status not in NO_COMPLAINT:
            yield message("monitor.memory_has_room", gpu=gpu.gpu, peak=peak)
    if gpu.temperature_c is not None and gpu.temperature_c.high >= 80:
        yield message("monitor.hot", gpu=gpu.gpu, celsius=gpu.temperature_c.high)
    for reason, share in gpu.throttled.items():
        # At the power cap a GPU does as much as it may: that is the target, not a fault.
        if share >= 0.05 and reason != "power cap":
            yield message("monitor.throttled", gpu=gpu.gpu, reason=reason, share=share)


def _host_notes(host: HostSummary, is_gpu_busy: bool) -> Iterator[Message]:
    if host.cpu_share is not None and host.cpu_share.mean > 0.9:
        yield message("monitor.cpu_full", share=host.cpu_share.mean)
    if host.iowait_share is not None and host.iowait_share.mean > 0.1:
        yield message("monitor.storage_slow", share=host.iowait_share.mean)
    if host.memory_used_share is not None and host.memory_used_share.high > 0.9:
        yield message("monitor.host_memory_high", share=host.memory_used_share.high)
    if host.main_cpu_share is not None and host.main_cpu_share.mean >= 0.95 and not is_gpu_busy:
        yield message("monitor.main_process_busy", share=host.main_cpu_share.mean)
    if host.worker_cpu_share is not None and host.worker_cpu_share.mean >= 0.9:
        facts = {"share": host.worker_cpu_share.mean, "workers": host.workers}
        if host.cpus_allowed is None:
            yield message("monitor.workers_busy", **facts)
        else:
            yield message("monitor.workers_busy_of", cores=host.cpus_allowed, **facts)
