from __future__ import annotations

import math
import os
import threading
import time

import pytest

from flatout.records.sample import GpuReading, GpuSample, HostSample, ProcessSample, Tick
from flatout.telemetry.sampling import SOURCES, Sampling, SamplingOptions, columns, row, rows
from flatout.words import english


def until(condition, deadline_s: float = 20.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "not within the deadline"
        time.sleep(0.01)


def test_ticks_carry_every_source_and_stop_ends_the_threads(nvml):
    ticks: list[Tick] = []
    with Sampling(os.getpid(), 0.02, ticks.append, SamplingOptions(visible="1,0", load_nvml=nvml)) as sampling:
        until(lambda: any(tick.gpu.gpus for tick in ticks) and len(ticks) > 12)

    *ticks, last = ticks
    assert all(tick.host is not None and tick.processes for tick in ticks)
    # What the kernel has done to the run in the end.
    assert last.cgroup is not None and last.host is None
    assert any(tick.cgroup is not None for tick in ticks) and any(tick.cores for tick in ticks)
    assert [facts.uuid for facts in sampling.gpu_facts] == ["GPU-bb11", "GPU-aa00"] and sampling.driver == "580.1"
    assert sampling.ticks == len(ticks) and sampling.cpu_ms_per_tick > 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flatout-")]
    sampling.stop()


def test_a_blocked_driver_does_not_hold_up_the_ticks(nvml):
    lib = nvml()
    lib.block = threading.Event()
    ticks: list[Tick] = []
    sampling = Sampling(None, 0.02, ticks.append, SamplingOptions(load_nvml=lambda: lib))
    sampling.start()
    assert lib.is_blocked.wait(200)
    seen = len(ticks)

    until(lambda: len(ticks) > seen + 10)

    assert ticks[-1].gpu.gpus == () and ticks[-1].host.load_1min is not None
    started_s = time.perf_counter()
    sampling.stop()
    assert time.perf_counter() - started_s < 2
    lib.block.set()


def test_a_tick_that_cannot_be_filed_is_a_notice(nvml):
    def full(tick: Tick) -> None:
        raise OSError("No space left on device")

    with Sampling(None, 0.02, full, SamplingOptions(load_nvml=nvml)) as sampling:
        until(lambda: sampling.ticks > 3)

    assert tuple(map(english, sampling.notices)) == ("a telemetry sample could not be filed: No space left on device",)


def test_the_interval_stretches_in_long_runs():
    sampling = Sampling(None, 0.2)

    ages = {0: 0.2, 599: 0.2, 601: 1.0, 7201: 5.0, 90_000: 30.0}

    assert {age: sampling._interval_at(age) for age in ages} == ages
    assert Sampling(None, 10.0)._interval_at(601) == 10.0
    assert Sampling(None, 0.2, options=SamplingOptions(stretch=False))._interval_at(90_000) == 0.2


@pytest.mark.parametrize(("processors", "interval_s"), [(2, 4 / 6), (16, 0.2), (1, 1.0)])
def test_where_processors_are_few_dear_ticks_come_more_seldom(monkeypatch, processors, interval_s):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    sampling = Sampling(None, 0.2)

    sampling._recent_cpu_s = 0.004

    assert sampling._interval_at(10.0) == pytest.approx(interval_s)


def test_rows_match_their_columns_and_mark_the_unmeasured():
    tick = Tick(
        t_s=5.0,
        gpu=GpuReading(4.5, (GpuSample(0, util_percent=30.0), GpuSample(1))),
        host=HostSample(cpu_share=0.5),
        processes=(ProcessSample(7, "worker", cpu_share=0.1),),
    )

    found = rows(tick)

    assert set(found) == {"gpu", "host", "processes"}
    for source, lines in found.items():
        assert all(len(line) == len(columns(source)) for line in lines)
    gpu = dict(zip(columns("gpu"), found["gpu"][0], strict=True))
    assert gpu["t_s"] == 4.5 and gpu["util_percent"] == 30.0 and math.isnan(gpu["power_w"])
    worker = dict(zip(columns("processes"), found["processes"][0], strict=True))
    assert worker["pid"] == 7.0 and worker["role"] == 1.0


def test_a_reading_seen_again_is_not_filed_again():
    assert rows(Tick(5.0, gpu=GpuReading(4.5, (GpuSample(0),), fresh=False))) == {}


def test_every_source_has_columns():
    assert all(columns(source)[0] == "t_s" for source in SOURCES)
    assert row("host", 1.0, HostSample())[0] == 1.0
