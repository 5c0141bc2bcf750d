"""GPUs by NVML. Its calls may block for many seconds (a card that falls off the bus), so they live in their own thread.

`NvmlSampler.sample()` never waits: it hands out the last finished reading with its age. What cannot be measured is
None, and the reading's `reason` says why.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from flatout.records.message import Message, message, verbatim
from flatout.records.sample import GpuFacts, GpuReading, GpuSample
from flatout.telemetry.procfile import read_file

_T = TypeVar("_T")
_KIB = 1 << 10
# Without GPM each of NVML's PCIe counters watches the bus for 20 ms: one card a second is enough.
_PCIE_S = 1.0
# A reading older than this (or than three intervals) says nothing about now.
_STALE_S = 3.0
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_PCIE_TX, _PCIE_RX = 0, 1
_MIB = 1 << 20


class _Device:
    """One GPU's handle. Every question that fails is remembered, and not asked again where that is pointless."""

    def __init__(self, lib: Any, handle: Any, card: Any, facts: GpuFacts) -> None:
        self.facts = facts
        self._lib = lib
        self._handle = handle
        self._card = card
        self._hopeless: set[str] = set()
        self._lasting: dict[Message, None] = {}
        self._passing: dict[Message, None] = {}
        self._is_lost = False
        self._gpm: Gpm | None = None
        self._asked_us = 0  # when utilisation by process was last sampled
        if facts.is_mig:
            self._lasting[message("nvml.mig_slice")] = None
        else:
            self._gpm = self._ask("GPM", lambda: Gpm(lib, handle))
            mode = self._ask("MIG mode", lambda: lib.nvmlDeviceGetMigMode(handle))
            if mode is not None and mode[0]:
                self._lasting[message("nvml.mig_card")] = None

    @property
    def reason(self) -> Message | None:
        reasons = (*self._lasting, *self._passing)
        return message("nvml.of_gpu", gpu=self.facts.gpu, reasons=reasons) if reasons else None

    def read(self, own_pids: Set[int], with_pcie: bool) -> GpuSample:
        self._passing.clear()
        lib, handle = self._lib, self._handle
        memory = self._ask("memory", self._memory)
        own_bytes, others = self._processes(own_pids)
        shared = GpuSample(
            gpu=self.facts.gpu,
            memory_used_bytes=None if memory is None else float(memory.used),
            memory_total_bytes=None if memory is None else float(memory.total),
            own_memory_bytes=own_bytes,
            other_processes=others,
            temperature_c=self._ask("temperature", lambda: float(lib.nvmlDeviceGetTemperature(self._card, 0))),
        )
        if self.facts.is_mig:
            return self._unless_lost(shared)
        util = self._ask("utilisation", lambda: lib.nvmlDeviceGetUtilizationRates(handle))
        sample = replace(
            shared,
            util_percent=None if util is None else float(util.gpu),
            own_util_percent=self._own_utilisation(own_pids),
            memory_util_percent=None if util is None else float(util.memory),
            power_w=self._ask("power", lambda: lib.nvmlDeviceGetPowerUsage(handle) / 1000),
            power_limit_w=self._ask("power limit", lambda: lib.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            sm_clock_mhz=self._ask("SM clock", lambda: float(lib.nvmlDeviceGetClockInfo(handle, _SM_CLOCK))),
            memory_clock_mhz=self._ask(
                "memory clock", lambda: float(lib.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK))
            ),
            throttle_bits=self._ask("throttle reasons", self._throttle_bits),
            **self._activity(with_pcie),
        )
        return self._unless_lost(sample)

    def _unless_lost(self, sample: GpuSample) -> GpuSample:
        return GpuSample(gpu=sample.gpu) if self._is_lost else sample

    def _activity(self, with_pcie: bool) -> dict[str, Any]:
        gpm = self._gpm
        if gpm is not None:
            return self._ask("GPM", gpm.read) or {}
        if not with_pcie:
            return {}
        return {
            "pcie_rx_bytes_per_s": self._ask("PCIe", lambda: self._pcie(_PCIE_RX)),
            "pcie_tx_bytes_per_s": self._ask("PCIe", lambda: self._pcie(_PCIE_TX)),
        }

    def _pcie(self, counter: int) -> float:
        return float(self._lib.nvmlDeviceGetPcieThroughput(self._handle, counter)) * _KIB

    def _memory(self) -> Any:
        # The second form counts the driver's reserve apart, as nvidia-smi does.
        version = getattr(self._lib, "nvmlMemory_v2", None)
        try:
            return self._lib.nvmlDeviceGetMemoryInfo(self._handle, version=version)
        except self._lib.NVMLError as error:
            if error.value == self._lib.NVML_ERROR_GPU_IS_LOST:
                raise
            return self._lib.nvmlDeviceGetMemoryInfo(self._handle)

    def _throttle_bits(self) -> float:
        ask = getattr(self._lib, "nvmlDeviceGetCurrentClocksEventReasons", None)
        return float((ask or self._lib.nvmlDeviceGetCurrentClocksThrottleReasons)(self._handle))

    def _processes(self, own_pids: Set[int]) -> tuple[float | None, float | None]:
        """Memory of the watched tree alone, and how many others hold some. Their ids are compared and forgotten.

        None rather than 0 when none of ours is listed: inside a container NVML may show the host's process ids.
        """
        if not own_pids:
            return None, None
        processes = self._ask("process list", lambda: self._lib.nvmlDeviceGetComputeRunningProcesses(self._handle))
        sizes = [process.usedGpuMemory for process in processes or () if process.pid in own_pids]
        known = [float(size) for size in sizes if size is not None]
        others = {process.pid for process in processes or () if process.pid not in own_pids}
        return sum(known) if known else None, float(len(others)) if sizes else None

    def _own_utilisation(self, own_pids: Set[int]) -> float | None:
        """Percent of the time in which kernels of the watched tree ran, since this was last asked."""
        if not own_pids:
            return None
        since = self._asked_us
        said = self._ask("processes", lambda: self._utilisation_since(since))
        latest = max((sample.timeStamp for sample in said or ()), default=since)
        if latest <= since:
            return None  # nothing new
        self._asked_us = latest
        own = [sample for sample in said or () if sample.pid in own_pids and sample.timeStamp > since]
        if not since or not own:
            return None
        by_process: dict[int, list[float]] = {}
        for sample in own:
            by_process.setdefault(sample.pid, []).append(float(sample.smUtil))
        return min(100.0, sum(sum(values) / len(values) for values in by_process.values()))

    def _utilisation_since(self, since_us: int) -> list[Any]:
        ask = getattr(self._lib, "nvmlDeviceGetProcessUtilization", None)
        try:
            return [] if ask is None else list(ask(self._handle, since_us))
        except self._lib.NVMLError as error:
            if error.value == self._lib.NVML_ERROR_NOT_FOUND:
                return []  # nobody has used it meanwhile
            raise

    def _ask(self, what: str, question: Callable[[], _T]) -> _T | None:
        if self._is_lost or what in self._hopeless:
            return None
        try:
            return question()
        except self._lib.NVMLError as error:
            self._note(what, error)
        return None

    def _note(self, what: str, error: Any) -> None:
        lib = self._lib
        if error.value in (lib.NVML_ERROR_NOT_SUPPORTED, lib.NVML_ERROR_FUNCTION_NOT_FOUND):
            self._hopeless.add(what)
        elif error.value == lib.NVML_ERROR_NO_PERMISSION:
            self._hopeless.add(what)
            self._lasting[message("nvml.no_permission", what=what)] = None
        elif error.value == lib.NVML_ERROR_GPU_IS_LOST:
            self._is_lost = True
            self._lasting[message("nvml.lost")] = None
        else:
            self._passing[message("nvml.unreadable", what=what, error=verbatim(str(error)))] = None


class NvmlDevices:
    """The visible GPUs. Every method calls the driver and may block."""

    def __init__(self, lib: Any, setting: str | None) -> None:
        self._lib = lib
        self._pcie_due_s = float("-inf")
        self._pcie_next = 0
        lib.nvmlInit()
        self.driver = _text(lib.nvmlSystemGetDriverVersion())
        self._devices = self._open(setting)

    def read(self, own_pids: Set[int], clock: Callable[[], float]) -> GpuReading:
        pcie_gpu = self._pcie_turn(clock())
        samples = tuple(
            device.read(own_pids, with_pcie=place == pcie_gpu) for place, device in enumerate(self._devices)
        )
        reasons = [device.reason for device in self._devices if device.reason]
        if not self._devices:
            reasons = [message("nvml.none_visible")]
        facts = tuple(device.facts for device in self._devices)
        why = reasons[0] if reasons else None
        for reason in reasons[1:]:
            why = message("nvml.both", first=why, second=reason)
        return GpuReading(clock(), samples, facts, why, self.driver)

    def close(self) -> None:
        self._lib.nvmlShutdown()

    def _pcie_turn(self, now_s: float) -> int | None:
        if now_s < self._pcie_due_s or not self._devices:
            return None
        self._pcie_due_s = now_s + _PCIE_S
        self._pcie_next = (self._pcie_next + 1) % len(self._devices)
        return self._pcie_next

    def _open(self, setting: str | None) -> list[_Device]:
        lib = self._lib
        cards = [lib.nvmlDeviceGetHandleByIndex(index) for index in range(lib.nvmlDeviceGetCount())]
        listed: list[Listed] = []
        for index, card in enumerate(cards):
            listed.append(Listed(_text(lib.nvmlDeviceGetUUID(card)), index, handle=card))
            for part in self._slices(card) if "MIG-" in (setting or "") else ():
                listed.append(Listed(_text(lib.nvmlDeviceGetUUID(part)), None, parent=index, handle=part))
        devices = []
        for number, gpu in enumerate(visible_gpus(listed, setting)):
            card = gpu.handle if gpu.parent is None else cards[gpu.parent]
            name = _text(lib.nvmlDeviceGetName(card))
            facts = GpuFacts(number, gpu.nvml_index, gpu.uuid, name, is_mig=gpu.parent is not None)
            devices.append(_Device(lib, gpu.handle, card, facts))
        return devices

    def _slices(self, card: Any) -> list[Any]:
        lib = self._lib
        slices: list[Any] = []
        # A card that knows no MIG raises, and so does a place without a slice.
        with suppress(lib.NVMLError):
            for place in range(lib.nvmlDeviceGetMaxMigDeviceCount(card)):
                with suppress(lib.NVMLError):
                    slices.append(lib.nvmlDeviceGetMigDeviceHandleByIndex(card, place))
        return slices


class NvmlSampler:
    """Asks NVML again and again in a daemon thread; `sample()` takes the last finished reading and never waits."""

    def __init__(
        self,
        interval_s: float = 0.2,
        setting: str | None = None,
        own_pids: Callable[[], Set[int]] = frozenset,
        load: Callable[[], Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.interval_s = interval_s
        self._setting = setting
        self._own_pids = own_pids
        self._load = load or (lambda: importlib.import_module("pynvml"))
        self._clock = clock
        self._last: GpuReading | None = None
        self._handed: GpuReading | None = None
        self._has_ended = False
        self._started_s = clock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-nvml", daemon=True)

    def start(self) -> None:
        self._started_s = self._clock()
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Waits briefly: a call that hangs in the driver is left behind with its daemon thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def sample(self) -> GpuReading:
        now_s, last = self._clock(), self._last
        if last is None:
            waited_s = now_s - self._started_s
            is_starting = waited_s < _STALE_S
            reason = message("nvml.starting") if is_starting else message("nvml.silent", seconds=waited_s)
            return GpuReading(now_s, reason=reason, fresh=False)
        is_fresh, self._handed = last is not self._handed, last
        reading = replace(last, age_s=max(0.0, now_s - last.t_s), fresh=is_fresh)
        if self._has_ended or reading.age_s <= max(_STALE_S, 3 * self.interval_s):
            return reading
        empty = tuple(GpuSample(gpu=sample.gpu) for sample in last.gpus)
        return replace(reading, gpus=empty, reason=message("nvml.silent", seconds=reading.age_s))

    def _run(self) -> None:
        try:
            devices = NvmlDevices(self._load(), self._setting)
        except Exception as error:  # whatever the driver's library does, the monitor goes on without it
            self._end(_why_absent(error))
            return
        try:
            while not self._stopping.is_set():
                started_s = self._clock()
                self._last = devices.read(self._own_pids(), self._clock)
                self._stopping.wait(max(0.01, self.interval_s - (self._clock() - started_s)))
            devices.close()
        except Exception as error:
            self._end(message("nvml.failed", error=verbatim(str(error))))

    def _end(self, reason: Message) -> None:
        empty = tuple(GpuSample(gpu=sample.gpu) for sample in self._last.gpus) if self._last else ()
        facts = self._last.facts if self._last else ()
        self._has_ended = True
        self._last = GpuReading(self._clock(), empty, facts, reason)


def _why_absent(error: Exception) -> Message:
    if isinstance(error, ImportError):
        why = message("nvml.not_installed")
    elif "Library Not Found" in str(error):
        why = message("nvml.no_driver")
    else:
        why = message("nvml.says", error=verbatim(str(error)))
    return message("nvml.absent", why=why)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# GPM: how much of a Hopper or newer GPU really worked between two moments (SMs, tensor cores, DRAM, PCIe).


class Gpm:
    """The activity of one GPU since the last `read`. `lib` is pynvml; raises its errors where GPM is not supported."""

    def __init__(self, lib: Any, handle: Any) -> None:
        if not lib.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise lib.NVMLError(lib.NVML_ERROR_NOT_SUPPORTED)
        self._lib = lib
        self._handle = handle
        self._metrics = {
            "sm_active_share": (lib.NVML_GPM_METRIC_SM_UTIL, 0.01),
            "sm_occupancy_share": (lib.NVML_GPM_METRIC_SM_OCCUPANCY, 0.01),
            "tensor_active_share": (lib.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 0.01),
            "dram_active_share": (lib.NVML_GPM_METRIC_DRAM_BW_UTIL, 0.01),
            "pcie_rx_bytes_per_s": (lib.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
            "pcie_tx_bytes_per_s": (lib.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
        }
        self._before, self._now = lib.nvmlGpmSampleAlloc(), lib.nvmlGpmSampleAlloc()
        self._has_before = False

    def read(self) -> dict[str, float | None]:
        """Field of GpuSample → value. Empty at first: activity is a difference of two samples."""
        self._before, self._now = self._now, self._before
        had_before, self._has_before = self._has_before, False
        self._lib.nvmlGpmSampleGet(self._handle, self._now)
        self._has_before = True
        if not had_before:
            return {}
        request = self._lib.c_nvmlGpmMetricsGet_t()
        request.version = self._lib.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = self._before, self._now
        request.numMetrics = len(self._metrics)
        for place, (metric, _) in enumerate(self._metrics.values()):
            request.metrics[place].metricId = metric
        self._lib.nvmlGpmMetricsGet(request)
        return {
            name: request.metrics[place].value * scale if request.metrics[place].nvmlReturn == 0 else None
            for place, (name, (_, scale)) in enumerate(self._metrics.items())
        }


# Which GPUs a process sees, in its own order: CUDA_VISIBLE_DEVICES matched against what NVML lists.


@dataclass(frozen=True, slots=True)
class Listed:
    """A GPU (or MIG slice) as NVML lists it. `parent` is the NVML index of the card a slice belongs to."""

    uuid: str
    nvml_index: int | None
    parent: int | None = None
    handle: Any = field(default=None, compare=False)


def visible_gpus(listed: Sequence[Listed], setting: str | None) -> list[Listed]:
    """The GPUs behind cuda:0, cuda:1 …  As in CUDA, everything from the first entry that names no GPU on is hidden."""
    cards = [gpu for gpu in listed if gpu.parent is None]
    if setting is None:
        return cards
    chosen: list[Listed] = []
    for entry in setting.split(","):
        gpu = _named(listed, cards, entry.strip())
        if gpu is None:
            break
        if gpu in chosen:
            # CUDA treats a GPU named twice as an error and shows none.
            return []
        chosen.append(gpu)
    return chosen


def _named(listed: Sequence[Listed], cards: Sequence[Listed], entry: str) -> Listed | None:
    if entry.isdigit():
        return next((gpu for gpu in cards if gpu.nvml_index == int(entry)), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    if entry.startswith("MIG-GPU-"):
        return _old_mig_name(listed, cards, entry)
    # A UUID may be shortened as long as it is unambiguous.
    matches = [gpu for gpu in listed if gpu.uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None


def _old_mig_name(listed: Sequence[Listed], cards: Sequence[Listed], entry: str) -> Listed | None:
    """Drivers before 470 name a slice MIG-GPU-<card's uuid>/<gpu instance>/<compute instance>."""
    exact = [gpu for gpu in listed if gpu.uuid.lower() == entry.lower()]
    if exact:
        return exact[0]
    card_uuid = entry.removeprefix("MIG-").split("/", 1)[0].lower()
    return next((gpu for gpu in cards if gpu.uuid.lower() == card_uuid), None)


def setting_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """CUDA_VISIBLE_DEVICES as that process was started with. No other variable is looked at."""
    name = b"CUDA_VISIBLE_DEVICES="
    for variable in (read_file(proc / str(pid) / "environ") or b"").split(b"\0"):
        if variable.startswith(name):
            return variable[len(name) :].decode(errors="replace")
    return None
