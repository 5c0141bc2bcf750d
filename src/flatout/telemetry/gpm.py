"""GPM: how much of a Hopper or newer GPU really worked between two moments (SMs, tensor cores, DRAM, PCIe)."""

from __future__ import annotations

from typing import Any

_MIB = 1 << 20


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

    def close(self) -> None:
        for sample in (self._before, self._now):
            self._lib.nvmlGpmSampleFree(sample)
