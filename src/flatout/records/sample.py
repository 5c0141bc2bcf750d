"""What telemetry measures at one moment. `None` is "not measured"; a zero is a measured zero.

Shares are 0..1, and a process's CPU share is of one core. Identities (names, UUIDs) live in the `…Facts` records, so
that a sample is numbers only and can be filed as a row of floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flatout.records.message import Message

Role = Literal["main", "worker", "other"]

# A row of floats holds a role as its place in this tuple.
ROLES: tuple[Role, ...] = ("main", "worker", "other")

# Bits of NVML's "clocks event reasons" (called throttle reasons before driver 535).
THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal",
    0x040: "hardware thermal",
    0x080: "power brake",
    0x100: "display clocks",
}
_NOT_SLOWING = 0x001 | 0x002 | 0x100


def throttle_names(bits: float | None) -> tuple[str, ...]:
    """The reasons that hold the clock down, in words; idle and chosen clocks are no throttling and are left out."""
    if bits is None:
        return ()
    slowing = int(bits) & ~_NOT_SLOWING
    return tuple(name for bit, name in THROTTLE_REASONS.items() if slowing & bit)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Which GPU this is. `gpu` is its number as the watched process sees it (cuda:0 …), `nvml_index` nvidia-smi's."""

    gpu: int
    nvml_index: int | None
    uuid: str
    name: str
    is_mig: bool


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU. Utilisation is NVML's: the percentage of time in which some kernel ran, however small."""

    gpu: int
    util_percent: float | None = None
    memory_util_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    own_memory_bytes: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_bits: float | None = None
    temperature_c: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    sm_active_share: float | None = None
    sm_occupancy_share: float | None = None
    tensor_active_share: float | None = None
    dram_active_share: float | None = None
    # Processes of others that hold memory on it; None where ours are not among those listed.
    other_processes: float | None = None
    # The part of the utilisation that is the watched tree's, by the driver's account of processes.
    own_util_percent: float | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """All visible GPUs at `t_s`. `reason` says in one line why something is not measured; `age_s` is since `t_s`.

    `fresh` is False when this reading was handed out before, so that it is not counted twice.
    """

    t_s: float
    gpus: tuple[GpuSample, ...] = ()
    facts: tuple[GpuFacts, ...] = ()
    reason: Message | None = None
    driver: str | None = None
    age_s: float = 0.0
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class HostSample:
    """The whole machine. Pressure is the kernel's PSI: percent of the last 10 s in which some task had to wait."""

    cpu_share: float | None = None
    iowait_share: float | None = None
    steal_share: float | None = None
    busiest_core_share: float | None = None
    load_1min: float | None = None
    memory_available_bytes: float | None = None
    memory_total_bytes: float | None = None
    swap_used_bytes: float | None = None
    swap_total_bytes: float | None = None
    cpu_pressure_percent: float | None = None
    io_pressure_percent: float | None = None
    memory_pressure_percent: float | None = None
    shm_used_bytes: float | None = None
    shm_total_bytes: float | None = None
    faults_per_s: float | None = None
    major_faults_per_s: float | None = None

    @property
    def memory_used_share(self) -> float | None:
        if self.memory_available_bytes is None or not self.memory_total_bytes:
            return None
        return 1 - self.memory_available_bytes / self.memory_total_bytes


@dataclass(frozen=True, slots=True)
class CoreSample:
    """One logical core: the share of time it was neither idle nor waiting for I/O."""

    core: int
    busy_share: float


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process of the watched tree. PSS counts shared pages once; it is read seldom because it is costly."""

    pid: int
    role: Role
    cpu_share: float | None = None
    rss_bytes: float | None = None
    pss_bytes: float | None = None
    major_faults_per_s: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    threads: float | None = None


@dataclass(frozen=True, slots=True)
class ThreadSample:
    """One thread of the watched tree. Seconds since it began: on a processor, and ready to run but without one."""

    pid: int
    tid: int
    run_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class SharedCores:
    """The processors that the run may use (its affinity), and who had them. Seconds are counted up from some moment.

    `busy_s` and `steal_s` are of everybody on these processors, `own_s` is what the watched tree took.
    """

    cores: float
    busy_s: float | None = None
    steal_s: float | None = None
    own_s: float | None = None


@dataclass(frozen=True, slots=True)
class NeighbourSample:
    """A process outside of the watched tree that took processor time: cores, over the last `span_s` seconds."""

    pid: int
    cores: float
    span_s: float


@dataclass(frozen=True, slots=True)
class DiskSample:
    """One block device, named by its numbers; `busy_share` is the share of time with a request in flight."""

    major: int
    minor: int
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class NetworkFsSample:
    """What the NFS mounts of this machine fetched from and sent to their servers."""

    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """The container's limits and their use. `None` for a limit means there is none, or none we may read.

    `memory_cache_bytes` is the file cache the kernel drops under pressure: it counts in the use, not in the danger.
    """

    cpu_quota_cores: float | None = None
    throttled_s: float | None = None
    memory_limit_bytes: float | None = None
    memory_current_bytes: float | None = None
    memory_cache_bytes: float | None = None
    oom_kills: float | None = None
    # Seconds, counted up, in which some task of the group was ready to run but without a processor (PSI).
    cpu_pressure_s: float | None = None


@dataclass(frozen=True, slots=True)
class FilesystemFacts:
    """Where a path lives. `is_rotational` is None where the disk behind it cannot be told."""

    type: str
    mount_point: str
    is_network: bool
    is_rotational: bool | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Everything measured at `t_s` (time.perf_counter seconds). A source whose turn it was not is None or empty."""

    t_s: float
    gpu: GpuReading | None = None
    host: HostSample | None = None
    cores: tuple[CoreSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    disks: tuple[DiskSample, ...] = ()
    network: NetworkFsSample | None = None
    cgroup: CgroupSample | None = None
    threads: tuple[ThreadSample, ...] = ()
    shared: SharedCores | None = None
    neighbours: tuple[NeighbourSample, ...] = ()


# What a stretch of watching comes to: the record behind the closing summary of `flatout watch`.


# How a GPU's utilisation compares with the usual targets; "light" is busy by the clock, yet far from its power.
GpuStatus = Literal["on target", "light", "unsteady", "room", "idle", "too short", "not measured"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation, and the extremes, of `count` readings."""

    mean: float
    std: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """One GPU over the whole watch. `fluctuation_points` is the width of the band holding 80% of utilisation readings.

    `throttled` maps a reason to the share of readings in which it held the clock down.
    """

    gpu: int
    name: str | None
    status: GpuStatus
    sentence: Message
    util_percent: Spread | None = None
    fluctuation_points: float | None = None
    memory_util_percent: Spread | None = None
    memory_used_bytes: Spread | None = None
    memory_total_bytes: float | None = None
    own_memory_bytes: Spread | None = None
    power_w: Spread | None = None
    power_share: Spread | None = None
    temperature_c: Spread | None = None
    sm_active_share: Spread | None = None
    tensor_active_share: Spread | None = None
    dram_active_share: Spread | None = None
    throttled: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostSummary:
    """The machine over the whole watch. CPU of main and workers is each process's, as a share of one core."""

    cpu_share: Spread | None = None
    iowait_share: Spread | None = None
    memory_used_share: Spread | None = None
    io_pressure_percent: Spread | None = None
    main_cpu_share: Spread | None = None
    worker_cpu_share: Spread | None = None
    workers: int | None = None
    cpus_allowed: float | None = None


@dataclass(frozen=True, slots=True)
class MonitorSummary:
    """The whole watch. `skipped_lines` counts lines of a CSV that could not be read."""

    duration_s: float
    readings: int
    gpus: tuple[GpuSummary, ...]
    host: HostSummary
    notes: tuple[Message, ...] = ()
    reason: Message | None = None
    skipped_lines: int = 0
