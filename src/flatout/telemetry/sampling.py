"""The thread that joins the samplers: one tick is one look at everything whose turn it is."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from flatout.records.message import Message, message, verbatim
from flatout.records.sample import (
    ROLES,
    CgroupSample,
    CoreSample,
    DiskSample,
    GpuFacts,
    GpuReading,
    GpuSample,
    HostSample,
    NeighbourSample,
    NetworkFsSample,
    ProcessSample,
    Role,
    SharedCores,
    ThreadSample,
    Tick,
)
from flatout.telemetry.cgroup import CgroupSampler
from flatout.telemetry.disk import DiskSampler, NetworkFsSampler, open_data_files
from flatout.telemetry.host import HostSampler
from flatout.telemetry.nvml import NvmlSampler, setting_of
from flatout.telemetry.processes import ProcessSampler
from flatout.telemetry.scheduling import NeighbourSampler, ThreadSampler, allowed_cores

_Sample = TypeVar("_Sample", covariant=True)
# (from this age of the run on, seconds between ticks at least): a week's record stays in the tens of megabytes.
_STRETCH = ((0.0, 0.0), (600.0, 1.0), (7200.0, 5.0), (86400.0, 30.0))
# Share of the machine's processors that sampling may take: on a small machine ticks come less often.
_BUDGET = 0.003
_LONGEST_FOR_BUDGET_S = 1.0
# Sources that change slowly, or give many rows, have their turn every so many ticks.
_SELDOM = 5
_MANY_PROCESSES = 16
# Open files are collected until there are enough to tell where the data lives.
_ENOUGH_FILES = 200
_MAPS_EVERY = 25
_MOST_FAILURES = 3


class Sampler(Protocol[_Sample]):
    """Anything that measures. `sample` takes what can be had now and raises nothing a user should see."""

    def sample(self) -> _Sample: ...


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """`visible` is what CUDA_VISIBLE_DEVICES says; by default as the watched process was started with.

    `stretch` lets the interval grow in long runs; `load_nvml` imports NVML's bindings.
    """

    visible: str | None = None
    stretch: bool = True
    load_nvml: Callable[[], Any] | None = None


class Sampling:
    """Samples the machine, the GPUs and the tree of `root_pid`, and calls `on_tick` with each Tick, in its own thread.

    `root_pid` None watches no process.
    """

    def __init__(
        self,
        root_pid: int | None,
        interval_s: float = 0.2,
        on_tick: Callable[[Tick], None] | None = None,
        options: SamplingOptions | None = None,
    ) -> None:
        options = options or SamplingOptions()
        self.latest: Tick | None = None
        self._interval_s = interval_s
        self._on_tick = on_tick
        self._stretch = options.stretch
        self._processes: ProcessSampler | None = None if root_pid is None else ProcessSampler(root_pid)
        visible = options.visible
        if visible is None:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") if root_pid is None else setting_of(root_pid)
        self._nvml = NvmlSampler(interval_s, visible, self._own_pids, options.load_nvml)
        self._host, self._disks = HostSampler(), DiskSampler()
        self._network, self._cgroup = NetworkFsSampler(), CgroupSampler(root_pid)
        self._root_pid = root_pid
        self._cores: frozenset[int] = frozenset()
        self._threads = ThreadSampler(self._roles)
        self._neighbours = NeighbourSampler(self._own_pids)
        self._failures: dict[str, int] = {}
        self._notices: dict[Message, None] = {}
        self._data_files: set[str] = set()
        self.ticks = 0
        self._cpu_s = self._recent_cpu_s = 0.0
        self._quota_cores = math.inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-sampling", daemon=True)

    def start(self) -> None:
        self._nvml.start()
        self._thread.start()

    def stop(self) -> None:
        """Ends both threads; a second call does nothing. A driver call that hangs is not waited for."""
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
        self._nvml.stop()

    def __enter__(self) -> Sampling:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def cpu_ms_per_tick(self) -> float | None:
        """What sampling itself takes of a processor."""
        return self._cpu_s / self.ticks * 1000 if self.ticks else None

    @property
    def gpu_facts(self) -> tuple[GpuFacts, ...]:
        return self.latest.gpu.facts if self.latest is not None and self.latest.gpu is not None else ()

    @property
    def driver(self) -> str | None:
        """The GPU driver's version."""
        return self.latest.gpu.driver if self.latest is not None and self.latest.gpu is not None else None

    @property
    def data_files(self) -> frozenset[str]:
        """Data files seen open in the tree so far. Files opened and closed between two looks are missed."""
        return frozenset(tuple(self._data_files))

    @property
    def notices(self) -> tuple[Message, ...]:
        """One line on each thing that was not measured."""
        return tuple(self._notices)

    @property
    def neighbours(self) -> dict[int, str]:
        """The names of the processes outside of the watched tree that took processor time while the tree waited."""
        return dict(self._neighbours.names)

    def _own_pids(self) -> frozenset[int]:
        return self._processes.pids if self._processes is not None else frozenset()

    def _roles(self) -> dict[int, Role]:
        return self._processes.roles if self._processes is not None else {}

    def _run(self) -> None:
        started_s = due_s = time.perf_counter()
        while not self._stopping.is_set():
            cpu_s = time.thread_time()
            self._tick()
            took_s = time.thread_time() - cpu_s
            self._cpu_s += took_s
            # From zero on: the first ticks are expensive, and a short run should still get its samples.
            self._recent_cpu_s += (took_s - self._recent_cpu_s) / 8
            now_s = time.perf_counter()
            interval_s = self._interval_at(now_s - started_s)
            self._nvml.interval_s = interval_s
            # After a pause (suspend, a stopped process) go on from now instead of catching up.
            due_s = max(due_s + interval_s, now_s)
            self._stopping.wait(due_s - now_s)
        # Runs often end by being killed for want of memory.
        self._file(Tick(t_s=time.perf_counter(), cgroup=self._try("cgroup", self._cgroup)))

    def _interval_at(self, age_s: float) -> float:
        if not self._stretch:
            return self._interval_s
        affordable_s = min(_LONGEST_FOR_BUDGET_S, self._recent_cpu_s / (_BUDGET * self._processors()))
        return max(self._interval_s, affordable_s, *(least_s for from_s, least_s in _STRETCH if age_s >= from_s))

    def _processors(self) -> float:
        """Those this process may use; a container's quota counts."""
        return min(float(len(os.sched_getaffinity(0))), self._quota_cores)

    def _tick(self) -> None:
        is_seldom = self.ticks % _SELDOM == 0
        host = self._try("host", self._host)
        processes = self._process_samples(is_seldom)
        threads, shared = self._scheduling(is_seldom, has_processes=bool(processes))
        tick = Tick(
            t_s=time.perf_counter(),
            gpu=self._try("GPU", self._nvml),
            host=host,
            cores=self._host.cores if host is not None and is_seldom else (),
            processes=processes,
            threads=threads,
            shared=shared,
            neighbours=self._neighbour_samples(),
            disks=self._try("disks", self._disks) or (),
            network=self._try("network file systems", self._network) if is_seldom else None,
            cgroup=self._try("cgroup", self._cgroup) if is_seldom else None,
        )
        if tick.cgroup is not None:
            self._quota_cores = tick.cgroup.cpu_quota_cores or math.inf
        if is_seldom:
            self._collect_data_files()
        if tick.gpu is not None and tick.gpu.reason is not None and tick.gpu.fresh:
            self._notices[tick.gpu.reason] = None
        self.latest = tick
        self.ticks += 1
        self._file(tick)

    def _file(self, tick: Tick) -> None:
        if self._on_tick is not None:
            try:
                self._on_tick(tick)
            except Exception as error:
                self._notices[message("run.sample_not_filed", error=verbatim(str(error)))] = None

    def _process_samples(self, is_seldom: bool) -> tuple[ProcessSample, ...]:
        processes = self._processes
        is_thinned = self._stretch and not is_seldom
        if processes is None or (is_thinned and len(processes.pids) > _MANY_PROCESSES):
            return ()
        return self._try("processes", processes) or ()

    def _scheduling(self, is_seldom: bool, has_processes: bool) -> tuple[tuple[ThreadSample, ...], SharedCores | None]:
        """Right after the machine and the processes were read: their times are compared."""
        if self._processes is None or self._root_pid is None or not has_processes:
            return (), None
        if is_seldom or not self._cores:
            self._cores = self._neighbours.cores = allowed_cores(self._root_pid) or self._cores
        counted_s = self._host.counted_s(self._cores)
        busy_s, steal_s = (None, None) if counted_s is None else counted_s
        shared = SharedCores(float(len(self._cores)), busy_s, steal_s, self._processes.cpu_s) if self._cores else None
        return self._try("threads", self._threads) or (), shared

    def _neighbour_samples(self) -> tuple[NeighbourSample, ...]:
        """Looked for only while threads of ours are ready to run but do not."""
        if self._processes is None or not self._neighbours.is_due(self._threads.delay_share):
            return ()
        return self._try("neighbours", self._neighbours) or ()

    def _collect_data_files(self) -> None:
        if self._processes is None or len(self._data_files) >= _ENOUGH_FILES:
            return
        pids = sorted(self._processes.pids)[:_MANY_PROCESSES]
        # Reading the memory map of a large process takes milliseconds: rarely.
        self._data_files |= open_data_files(pids, mapped=self.ticks % _MAPS_EVERY == 0)

    def _try(self, what: str, sampler: Sampler[_Sample]) -> _Sample | None:
        """A sampler that keeps failing is left out, with one line about it; the others go on."""
        if self._failures.get(what, 0) >= _MOST_FAILURES:
            return None
        try:
            sample = sampler.sample()
        except Exception as error:
            self._failures[what] = self._failures.get(what, 0) + 1
            self._notices[message("run.source_not_measured", source=what, why=verbatim(str(error)))] = None
            return None
        self._failures[what] = 0
        return sample


# Samples as rows of floats, for the run's `telemetry/<source>.rows` files. NaN is "not measured".

_RECORDS: dict[str, Any] = {
    "gpu": GpuSample,
    "host": HostSample,
    "cores": CoreSample,
    "processes": ProcessSample,
    "disks": DiskSample,
    "network": NetworkFsSample,
    "cgroup": CgroupSample,
    "threads": ThreadSample,
    "shared": SharedCores,
    "neighbours": NeighbourSample,
}
_NAMES = {source: tuple(field.name for field in fields(record)) for source, record in _RECORDS.items()}
_GETTERS = {source: attrgetter(*names) for source, names in _NAMES.items()}
_ROLE_NUMBERS = {role: float(number) for number, role in enumerate(ROLES)}

SOURCES = tuple(_RECORDS)


def columns(source: str) -> tuple[str, ...]:
    """The names of a row's floats: `t_s` (CLOCK_MONOTONIC seconds), then the fields of the source's record."""
    return ("t_s", *_NAMES[source])


def row(source: str, t_s: float, sample: object) -> tuple[float, ...]:
    """One sample as floats; a process's role is its place in ROLES."""
    return (t_s, *(_float(value) for value in _GETTERS[source](sample)))


def rows(tick: Tick) -> dict[str, list[tuple[float, ...]]]:
    """The rows a tick adds to each source."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for source in SOURCES:
        t_s, given = tick.t_s, getattr(tick, source)
        if isinstance(given, GpuReading):
            # Filed once, at its own time, however often it is seen.
            t_s, given = given.t_s, given.gpus if given.fresh else ()
        samples = given if isinstance(given, tuple) else () if given is None else (given,)
        if samples:
            found[source] = [row(source, t_s, sample) for sample in samples]
    return found


def _float(value: float | str | None) -> float:
    if value is None:
        return math.nan
    return _ROLE_NUMBERS[value] if isinstance(value, str) else float(value)  # type: ignore[index]
