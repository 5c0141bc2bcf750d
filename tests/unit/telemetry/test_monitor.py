from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.records.sample import GpuFacts, GpuReading, GpuSample, HostSample, ProcessSample, Tick
from flatout.telemetry.monitor import MonitorTotals
from flatout.words import english
from tests.unit.telemetry.ticks import summarise_ticks


def ticks(utils, **figures):
    for number, util in enumerate(utils):
        sample = GpuSample(0, util_percent=util, **figures)
        yield Tick(float(number), gpu=GpuReading(float(number), (sample,), (GpuFacts(0, 0, "GPU-a", "H200", False),)))


def status(utils, **figures) -> str:
    return summarise_ticks(ticks(utils, **figures)).gpus[0].status


def test_the_guides_good_run_is_on_target():
    summary = summarise_ticks(ticks([92, 90, 94, 93, 91] * 10, power_w=280.0, power_limit_w=300.0))

    gpu = summary.gpus[0]
    assert gpu.status == "on target" and gpu.name == "H200"
    assert gpu.util_percent.mean == pytest.approx(92) and gpu.util_percent.std == pytest.approx(1.414, abs=0.01)
    assert gpu.fluctuation_points < 10 and gpu.power_share.mean == pytest.approx(0.933, abs=0.01)
    assert summary.duration_s == 49 and summary.readings == 50 and summary.notes == ()


@pytest.mark.parametrize(
    ("utils", "expected"),
    [
        ([65, 50, 80, 65, 65] * 4, "room"),
        ([100, 60, 100, 95, 98] * 4, "unsteady"),
        ([40, 45, 50, 55, 60] * 4, "idle"),
        ([0] * 10, "idle"),
        ([99, 99], "too short"),
        ([None] * 10, "not measured"),
    ],
)
def test_the_status_follows_utilisation_and_its_fluctuation(utils, expected):
    assert status(utils) == expected


def test_a_busy_gpu_at_a_sixth_of_its_power_is_light():
    summary = summarise_ticks(ticks([98] * 10, power_w=100.0, power_limit_w=575.0, sm_active_share=0.2))

    assert summary.gpus[0].status == "light"
    assert "power was 17% of its limit and SMs were 20% active" in english(summary.gpus[0].sentence)


def test_heat_memory_and_throttling_are_noted():
    hot = {
        "temperature_c": 84.0,
        "throttle_bits": float(0x40 | 0x4),
        "memory_used_bytes": 97.0,
        "memory_total_bytes": 100.0,
    }

    notes = " | ".join(map(english, summarise_ticks(ticks([95] * 10, **hot)).notes))

    assert "84 °C" in notes and "hardware thermal in 100%" in notes and "peaked at 97%" in notes
    assert "power cap" not in notes


def test_readings_that_were_counted_are_not_counted_again():
    gathering = MonitorTotals()
    reading = GpuReading(1.0, (GpuSample(0, util_percent=50.0),))
    gathering.add(Tick(1.0, gpu=reading))
    gathering.add(Tick(2.0, gpu=GpuReading(1.0, reading.gpus, fresh=False)))

    assert gathering.summary().gpus[0].util_percent.count == 1


def test_main_and_workers_are_told_apart():
    processes = (ProcessSample(1, "main", 0.97), ProcessSample(2, "worker", 0.2), ProcessSample(3, "worker", 0.4))
    host = HostSample(cpu_share=0.95, iowait_share=0.3, memory_available_bytes=5.0, memory_total_bytes=100.0)

    summary = summarise_ticks([Tick(0.0, host=host, processes=processes)])

    assert summary.host.main_cpu_share.mean == 0.97 and summary.host.workers == 2
    assert summary.host.worker_cpu_share.mean == pytest.approx(0.3)
    assert summary.host.memory_used_share.high == pytest.approx(0.95)
    assert len(summary.notes) == 4


def test_a_main_process_spinning_for_a_busy_gpu_is_no_news():
    main = (ProcessSample(1, "main", 1.0),)
    gpu = GpuReading(0.0, (GpuSample(0, util_percent=99.0),))

    assert summarise_ticks([Tick(0.0, gpu=gpu, processes=main)] * 6).notes == ()
    assert len(summarise_ticks([Tick(0.0, processes=main)] * 6).notes) == 1


def test_an_empty_watch_has_a_summary():
    summary = summarise_ticks([])

    assert summary.gpus == () and summary.readings == 0 and summary.host.cpu_share is None


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_spread_and_fluctuation_agree_with_the_plain_definitions(utils):
    gpu = summarise_ticks(ticks(utils)).gpus[0]

    assert gpu.util_percent.mean == pytest.approx(statistics.fmean(utils))
    assert gpu.util_percent.std == pytest.approx(statistics.pstdev(utils), abs=1e-6)

    assert 0 <= gpu.fluctuation_points <= max(utils) - min(utils)
