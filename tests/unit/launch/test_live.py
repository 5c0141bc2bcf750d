"""Following real recordings while they grow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flatout.attach import wire
from flatout.attach.recorder import Recorder
from flatout.launch.live import Follower, LiveView
from flatout.records.sample import GpuReading, GpuSample, Tick
from flatout.report.live import LiveFigures
from tests.unit.making import Process, facts

_STEP = wire.packer("step")


def _step(recorder: Recorder, index: int, samples: int = 8, wall_s: float = 0.1, data_s: float = 0.06) -> None:
    phases = [data_s, 0.0, wall_s - data_s] + [0.0] * 8
    rest = (0, -1, 1, 1, 0, 0, 0)
    body = _STEP.pack(wire.KINDS["step"][0], 0, 0, index, 0, int(wall_s * 1e9), 1, samples, *phases, *rest)
    recorder.append(body)


def _recorder(folder: Path, pid: int, role: str = "trainer") -> Recorder:
    return Recorder(str(folder / f"{pid}-1.rec"), {"pid": pid, "role": role})


def test_nothing_recorded_is_nothing_measured(tmp_path: Path) -> None:
    figures = Follower(tmp_path / "none").figures(None)

    assert (figures.steps, figures.samples_per_s, figures.phases, figures.gpu_util_percent) == (0, None, {}, None)


def test_ranks_add_up_and_workers_do_not_count(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    recorders = [_recorder(tmp_path, 1), _recorder(tmp_path, 2), _recorder(tmp_path, 3, "worker")]
    for recorder in recorders:
        for index in range(10):
            _step(recorder, index)

    figures = follower.figures(None)

    assert figures.steps == 10
    assert figures.steps_per_s == pytest.approx(10.0)
    assert figures.samples_per_s == pytest.approx(160.0)
    assert figures.phases["data"] == pytest.approx(0.6)
    for recorder in recorders:
        recorder.close()


def test_the_first_look_at_a_run_that_goes_on_shows_its_last_seconds(tmp_path: Path) -> None:
    read: list[int] = []
    follower = Follower(tmp_path, on_new=lambda new: read.append(new.count("step")))
    process = Process(tmp_path / "1-1.rec", facts(1))
    process.steps(600, 1000.0, {"data": 1.0}, samples=1)
    process.steps(200, 50.0, {"data": 0.0}, samples=8)
    process.end()

    figures = follower.figures(None)

    assert figures.steps == sum(read) == 800
    assert figures.samples_per_s == pytest.approx(160.0)
    assert figures.phases["data"] == 0.0


def test_old_steps_leave_the_window_and_unknown_samples_are_not_measured(tmp_path: Path) -> None:
    now = [0.0]
    follower = Follower(tmp_path, clock=lambda: now[0])
    recorder = _recorder(tmp_path, 1)
    _step(recorder, 0, wall_s=1.0, data_s=1.0)
    follower.figures(None)
    now[0] = 60.0
    _step(recorder, 1, samples=wire.UNKNOWN_SAMPLES, wall_s=0.5, data_s=0.0)

    figures = follower.figures(None)

    assert figures.steps == 2 and figures.elapsed_s == 60.0
    assert figures.steps_per_s == pytest.approx(2.0)
    assert figures.phases["data"] == 0.0
    assert figures.samples_per_s is None
    recorder.close()


def test_the_latest_reading_of_each_source_is_shown(tmp_path: Path) -> None:
    seen: list[LiveFigures] = []

    class View:
        def show(self, figures: LiveFigures) -> None:
            seen.append(figures)

        def close(self) -> None:
            pass

    live = LiveView(Follower(tmp_path), View())
    live.on_tick(Tick(1.0, gpu=GpuReading(1.0, (GpuSample(0, util_percent=40.0, power_w=70.0, power_limit_w=700.0),))))
    live.on_tick(Tick(1.2))
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        time.sleep(0.02)
    live.close()

    assert seen[0].gpu_util_percent == 40.0 and seen[0].gpu_power_share == pytest.approx(0.1)
