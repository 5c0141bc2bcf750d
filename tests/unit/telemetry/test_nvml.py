"""NVML through a stand-in for the driver's library: faults 32 to 35. Real values are checked in tests/gpu."""

from __future__ import annotations

import threading
import time
from dataclasses import fields
from types import SimpleNamespace

import pytest

from flatout.records.sample import GpuReading, GpuSample, throttle_names
from flatout.telemetry.nvml import NvmlSampler
from flatout.words import english


def until(condition, deadline_s: float = 10.0):
    """Polls, and gives back the first true answer."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("not within the deadline")


def first_reading(lib, setting: str | None = None, own=frozenset()) -> GpuReading:
    sampler = NvmlSampler(0.05, setting, lambda: own, lambda: lib)
    sampler.start()
    try:
        return until(lambda: (reading := sampler.sample()).fresh and reading)
    finally:
        sampler.stop()


def measured(sample: GpuSample) -> dict[str, float]:
    values = {field.name: getattr(sample, field.name) for field in fields(sample)}
    return {name: value for name, value in values.items() if value is not None and name != "gpu"}


def test_a_healthy_card_is_read_with_units(nvml):
    reading = first_reading(nvml())

    assert reading.reason is None and reading.driver == "580.1"
    assert [facts.uuid for facts in reading.facts] == ["GPU-aa00", "GPU-bb11"]
    sample = reading.gpus[0]
    assert (sample.util_percent, sample.power_w, sample.power_limit_w) == (10, 250.0, 500.0)
    assert sample.memory_used_bytes == 2 << 30 and sample.sm_clock_mhz == 1980
    assert throttle_names(sample.throttle_bits) == ("power cap", "hardware thermal")
    assert sample.sm_active_share is None


def test_a_missing_driver_is_said_and_nothing_is_zero(nvml):
    lib = nvml()
    lib.faults["nvmlInit"] = 12

    reading = first_reading(lib)

    assert reading.gpus == () and "not measured" in english(reading.reason)


def test_a_missing_package_names_the_way_out():
    def load():
        raise ImportError("No module named 'pynvml'")

    sampler = NvmlSampler(0.05, load=load)
    sampler.start()

    reading = until(lambda: (r := sampler.sample()).fresh and r)

    assert "pip install nvidia-ml-py" in english(reading.reason)


def test_no_permission_leaves_only_that_figure_out(nvml):
    lib = nvml()
    lib.faults["nvmlDeviceGetUtilizationRates"] = lib.NVML_ERROR_NO_PERMISSION

    reading = first_reading(lib)

    assert reading.gpus[0].util_percent is None
    assert reading.gpus[0].temperature_c == 55
    assert "no permission to read utilisation" in english(reading.reason) and "\n" not in english(reading.reason)


def test_a_lost_card_is_not_measured_rather_than_zero(nvml):
    lib = nvml(["GPU-aa00"])
    lib.faults["nvmlDeviceGetPowerUsage"] = lib.NVML_ERROR_GPU_IS_LOST

    reading = first_reading(lib)

    assert measured(reading.gpus[0]) == {}
    assert "lost" in english(reading.reason)


def test_an_unsupported_figure_is_not_asked_again(nvml):
    lib = nvml(["GPU-aa00"])
    lib.faults["nvmlDeviceGetPowerUsage"] = lib.NVML_ERROR_NOT_SUPPORTED
    sampler = NvmlSampler(0.01, None, frozenset, lambda: lib)
    sampler.start()

    until(lambda: lib.calls.count("nvmlDeviceGetUtilizationRates") > 3)
    sampler.stop()

    assert lib.calls.count("nvmlDeviceGetPowerUsage") == 1
    assert sampler.sample().reason is None


def test_a_mig_slice_has_memory_but_no_utilisation(nvml):
    reading = first_reading(nvml(["GPU-aa00"], slices=["MIG-1111", "MIG-2222"]), "MIG-2222")

    assert [facts.uuid for facts in reading.facts] == ["MIG-2222"] and reading.facts[0].is_mig
    assert reading.gpus[0].util_percent is None and reading.gpus[0].power_w is None
    assert reading.gpus[0].memory_used_bytes == 2 << 30
    assert "MIG" in english(reading.reason)


def test_a_passing_error_is_forgotten_when_it_has_passed(nvml):
    lib = nvml(["GPU-aa00"])
    lib.faults["nvmlDeviceGetTemperature"] = lib.NVML_ERROR_UNKNOWN
    sampler = NvmlSampler(0.01, None, frozenset, lambda: lib)
    sampler.start()
    until(lambda: "temperature" in english(sampler.sample().reason or ""))

    lib.faults.clear()

    until(lambda: (reading := sampler.sample()).gpus and reading.gpus[0].temperature_c == 55 and not reading.reason)
    sampler.stop()


def test_a_call_that_blocks_holds_nobody_up(nvml):
    lib = nvml()
    now_s = [1000.0]
    sampler = NvmlSampler(0.01, None, frozenset, lambda: lib, clock=lambda: now_s[0])
    sampler.start()
    until(lambda: sampler.sample().gpus)
    lib.block = threading.Event()
    assert lib.is_blocked.wait(200)
    before_s = time.perf_counter()

    now_s[0] += 1.0
    soon = sampler.sample()
    now_s[0] += 12.0
    late = sampler.sample()
    sampler.stop(timeout_s=0.05)

    assert time.perf_counter() - before_s < 1.0
    assert soon.gpus[0].util_percent == 10 and soon.age_s == pytest.approx(1.0)
    assert measured(late.gpus[0]) == {}, "a reading of 13 seconds ago says nothing about now"
    assert "has not answered for 13 s" in english(late.reason)
    lib.block.set()


def test_a_driver_that_never_answers_is_named(nvml):
    lib = nvml()
    lib.block = threading.Event()
    now_s = [0.0]
    sampler = NvmlSampler(0.01, None, frozenset, lambda: lib, clock=lambda: now_s[0])
    sampler.start()
    assert lib.is_blocked.wait(200)

    now_s[0] = 30.0

    assert english(sampler.sample().reason) == "NVML has not answered for 30 s"
    lib.block.set()
    sampler.stop()


def test_only_own_processes_memory_is_counted(nvml):
    lib = nvml(["GPU-aa00"])
    lib.processes = [
        SimpleNamespace(pid=10, usedGpuMemory=100),
        SimpleNamespace(pid=11, usedGpuMemory=50),
        SimpleNamespace(pid=666, usedGpuMemory=9999),
    ]

    assert first_reading(lib, own=frozenset({10, 11, 12})).gpus[0].own_memory_bytes == 150
    assert first_reading(lib, own=frozenset({77})).gpus[0].own_memory_bytes is None
    assert first_reading(lib, own=frozenset({10, 11})).gpus[0].other_processes == 1
    assert first_reading(lib, own=frozenset({77})).gpus[0].other_processes is None
    assert first_reading(lib).gpus[0].own_memory_bytes is None


def test_a_reading_is_fresh_once(nvml):
    lib = nvml(["GPU-aa00"])
    sampler = NvmlSampler(60.0, None, frozenset, lambda: lib)
    sampler.start()

    until(lambda: sampler.sample().fresh)

    again = sampler.sample()
    assert again.gpus and not again.fresh
    sampler.stop()


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        (None, ["GPU-aa00", "GPU-bb11"]),
        ("1,0", ["GPU-bb11", "GPU-aa00"]),
        ("GPU-bb", ["GPU-bb11"]),
        ("GPU-bb11,0", ["GPU-bb11", "GPU-aa00"]),
        ("", []),
        ("-1", []),
    ],
)
def test_cards_follow_cuda_visible_devices(nvml, setting, uuids):
    reading = first_reading(nvml(), setting)

    assert [facts.uuid for facts in reading.facts] == uuids
    assert [facts.gpu for facts in reading.facts] == list(range(len(uuids)))
    assert (reading.reason is None) == bool(uuids)
