"""A run read while it grows: the same figures as when it is read afterwards, and no byte twice."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.dashboard.charts import Charts
from flatout.dashboard.run_reader import RunReader
from flatout.errors import FlatoutError
from flatout.store.directory import SUMMARY
from flatout.store.manifest import write_manifest
from flatout.store.rows import Rows
from tests.dashboard import GrowingRun
from tests.unit.making import MS, Making


def _known(column: list[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def test_curves_grow_with_the_run(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=5)
    reading = RunReader(run.path)

    first = reading.look()
    run.second()
    second = reading.look()
    third = reading.look()
    run.end()

    assert first["from"] == 0 and reading.state == "running"
    assert _known(first["columns"]["samples_per_s"])[-1] == pytest.approx(640, rel=0.01)
    assert second["from"] >= len(first["columns"]["t"]) - 1
    assert len(third["columns"]["t"]) == 0, "nothing new, nothing told"
    assert second["now"]["steps"] == 6 * 20


def test_history_is_what_the_increments_add_up_to(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    reading = RunReader(run.path)
    columns: dict[str, list[Any]] = {}

    for _ in range(8):
        run.second()
        told = reading.look()
        for name, values in told["columns"].items():
            columns[name] = columns.get(name, [])[: told["from"]] + values
    run.end()

    assert columns == reading.history()["columns"]
    assert columns == RunReader(run.path).look()["columns"]


def test_memory_is_measured_against_the_containers_limit(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=3)
    run.end()

    now = RunReader(run.path).look()["now"]

    assert now["ram_limit"] == pytest.approx(64.0)
    assert 20 < now["ram"] < 30


def test_gpu_and_queue_are_shown(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=6)
    run.end()

    told = RunReader(run.path).look()
    now = told["now"]

    assert (
        0.3 < now["util"] < 0.6 and 0.3 < now["power"] < 0.7 and now["sm"] == pytest.approx(0.8 * now["util"], rel=0.01)
    )
    assert now["queue"] == pytest.approx(1.0)
    assert 0.5 < _known(told["columns"]["starved"])[-1] < 0.8


def test_what_is_not_measured_is_none(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.steps(20, 100.0, samples=0xFFFFFFFF)
    process.end()
    making.stored()

    told = json.loads(json.dumps(RunReader(making.directory.path).look(), allow_nan=False))

    assert set(told["columns"]["samples_per_s"]) == set(told["columns"]["util"]) == {None}
    assert told["now"]["queue"] is None and "util" not in told["now"]


def test_ranks_add_up_in_samples_and_not_in_steps(tmp_path: Path) -> None:
    making = Making(tmp_path)
    for rank in range(2):
        process = making.process(pid=100 + rank, rank=rank)
        process.steps(50, 100.0, samples=8)
        process.end()
    making.stored()

    columns = RunReader(making.directory.path).look()["columns"]

    assert _known(columns["steps_per_s"])[0] == pytest.approx(10.0)
    assert _known(columns["samples_per_s"])[0] == pytest.approx(160.0)


def test_a_host_with_another_clock_is_put_on_the_same_axis(tmp_path: Path) -> None:
    making = Making(tmp_path)
    host = making.manifest.host
    here = making.process(pid=100, host=host, start_unix_ns=5_000 * MS)
    far = making.process(pid=101, start_ns=900_000 * MS, host="other", start_unix_ns=5_000 * MS)
    for process in (here, far):
        process.steps(50, 100.0)
        process.end()
    making.stored()

    columns = RunReader(making.directory.path).look()["columns"]

    assert len(columns["t"]) <= 7, "both ran in the same five seconds"


def test_the_state_follows_the_manifest(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=1)
    reading = RunReader(run.path)
    reading.look()
    before = reading.state
    run.end(exit_code=3)
    reading.look_at_state_next()

    reading.look()

    assert (before, reading.state, reading.facts()["exit_code"]) == ("running", "finished", 3)


def test_the_end_of_a_run_is_seen_at_the_next_look(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=1)
    reading = RunReader(run.path)
    states = []

    for _ in range(2):
        reading.look()
        states.append(reading.state)
    run.end()
    reading.look()

    assert [*states, reading.state] == ["running", "running", "finished"]


def test_a_run_that_is_deleted_while_it_is_shown_is_trouble(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path, seconds=1)
    reading = RunReader(run.path)
    reading.look()
    run.end()
    shutil.rmtree(run.path)

    with pytest.raises(FlatoutError, match="is not a run"):
        reading.look()


@given(st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-12))
def test_curves_have_four_figures(value: float) -> None:
    charts = Charts()
    charts.add_rows("processes", Rows(("t_s", "cpu_share"), np.array([[100.0, value]]), 0))

    (told,) = charts.columns()["cpu"]

    assert told == pytest.approx(value, rel=6e-4)
    assert len(repr(told).replace("-", "").replace(".", "").partition("e")[0].strip("0")) <= 4


def test_a_run_is_over_when_its_verdict_is_there(tmp_path: Path) -> None:
    making = Making(tmp_path)
    run = making.stored(wall_s=None)
    states = []

    for ended_unix_s, has_verdict in ((time.time(), False), (time.time() - 3600, False), (time.time(), True)):
        write_manifest(run.path, replace(making.manifest, ended_unix_s=ended_unix_s))
        if has_verdict:
            (run.path / SUMMARY).write_text("{}")
        reading = RunReader(run.path)
        reading.look()
        states.append(reading.state)

    # One whose watcher has not said anything for so long will not.
    assert states == ["running", "finished", "finished"]
