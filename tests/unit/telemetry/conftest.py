"""An NVML library whose faults can be chosen: a driver that hangs or a card that is lost cannot be had on demand."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest


class StandIn:
    """The functions of pynvml that we call, over `uuids`. `faults` maps a function's name to an error code."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_UNKNOWN = 999

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, uuids: list[str] | None = None, slices: list[str] | None = None) -> None:
        self.uuids = ["GPU-aa00", "GPU-bb11"] if uuids is None else uuids
        self.slices = slices or []
        self.faults: dict[str, int] = {}
        self.processes: list[SimpleNamespace] = []
        self.calls: list[str] = []
        self.block: threading.Event | None = None
        self.is_blocked = threading.Event()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.faults or "*" in self.faults:
            raise self.NVMLError(self.faults.get(name, self.faults.get("*", 0)))

    def nvmlInit(self) -> None:
        self._call("nvmlInit")

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.uuids[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:
        return f"Card {handle}"

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        self._call("nvmlDeviceGetMigMode")
        return [1, 1] if self.slices else [0, 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, place: int) -> str:
        if place >= len(self.slices):
            raise self.NVMLError(6)
        return self.slices[place]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=0)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        self._call("nvmlDeviceGetUtilizationRates")
        if self.block is not None:
            self.is_blocked.set()
            self.block.wait(30)
        return SimpleNamespace(gpu=10 + self.uuids.index(handle), memory=5)

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> SimpleNamespace:
        self._call("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(used=2 << 30, total=8 << 30)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        self._call("nvmlDeviceGetTemperature")
        return 55

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self._call("nvmlDeviceGetPowerUsage")
        return 250_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        self._call("nvmlDeviceGetEnforcedPowerLimit")
        return 500_000

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        self._call("nvmlDeviceGetClockInfo")
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        self._call("nvmlDeviceGetCurrentClocksEventReasons")
        return 0x4 | 0x40

    def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
        self._call("nvmlDeviceGetPcieThroughput")
        return 1000

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        self._call("nvmlDeviceGetComputeRunningProcesses")
        return self.processes


@pytest.fixture
def nvml() -> type[StandIn]:
    return StandIn
