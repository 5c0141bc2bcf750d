"""A run over time: curves that keep their peaks, marks, processes, settings and excerpts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.attach import wire
from flatout.diagnose.settings import setting_lines
from flatout.diagnose.source_text import excerpts
from flatout.diagnose.summary import examine_run
from flatout.diagnose.timeline import BUCKETS, bucket_starts, make_timeline, peaks
from flatout.records.report import Location
from flatout.store.run import StoredRun
from tests.browser.recorded import STEPS, whole_run
from tests.cases.config.loader_settings import CASES
from tests.unit.making import MS, Making, body


@given(st.integers(0, 5 * BUCKETS), st.data())
def test_the_highest_and_the_lowest_point_stay(count: int, data: st.DataObject) -> None:
    values = np.zeros(count)
    high = data.draw(st.integers(0, count - 1)) if count else 0
    if count:
        values[high] = 7.0
        values[data.draw(st.integers(0, count - 1).filter(lambda n: n != high or count == 1))] -= 9.0

    found = peaks(np.arange(count, dtype=float), {"x": values})

    if not count:
        assert found is None
        return
    assert found is not None
    known = [value for value in found.values["x"] if value is not None]
    assert (max(known), min(known)) == (values.max(), values.min())
    assert len(found.t_s) == len(found.values["x"]) <= 2 * BUCKETS
    assert list(found.t_s) == sorted(found.t_s)
    # A point moves by less than a bucket.
    shown_s = found.t_s[found.values["x"].index(max(known))]
    assert abs(shown_s - float(values.argmax())) <= max(1, count // BUCKETS + 1)


def test_what_was_not_measured_is_no_zero() -> None:
    values = np.full(10 * BUCKETS, np.nan)
    values[500] = 3.0

    found = peaks(np.arange(len(values), dtype=float), {"seldom": values, "never": np.full(len(values), np.nan)})

    assert found is not None and set(found.values) == {"seldom"}
    assert set(found.values["seldom"]) == {None, 3.0}


def test_buckets_cover_everything_once() -> None:
    for count in (0, 1, BUCKETS - 1, BUCKETS, BUCKETS + 1, 12_345):
        starts = bucket_starts(count)

        assert len(starts) <= BUCKETS and (not count or starts[0] == 0)
        assert np.diff(np.append(starts, count)).sum() == count


def test_a_whole_run_over_time(tmp_path: Path) -> None:
    found = make_timeline(whole_run(tmp_path))

    assert set(found.curves) == {
        *("step", "phases", "rate", "queue", "starved", "gpu", "gpu_memory", "memory", "cpu", "disk"),
        *("tree_cpu", "tree_memory"),
    }
    assert found.curves["step"].t_s[0] == 0.0 and found.end_s == pytest.approx(20.5, abs=0.6)
    assert found.curves["starved"].values["starved"][3] == 0.5
    shares = [sum(step_shares) for step_shares in zip(*found.curves["phases"].values.values(), strict=True)]  # type: ignore[arg-type]
    assert shares == pytest.approx([1.0] * STEPS, abs=1e-3)
    assert found.curves["gpu"].values["power"][0] == pytest.approx(300 / 700, rel=1e-3)
    assert found.curves["tree_cpu"].values["worker"][0] == 0.8
    assert found.limits == {"memory": 64 << 30, "gpu_memory": 8e10} and found.gpus == 1
    assert [(mark.phase, mark.count) for mark in found.marks] == [("eval", 1), ("checkpoint", 1)] * 2
    assert [(process.pid, process.role) for process in found.processes] == [(100, "main"), (101, "worker")]
    assert [process.cpu_cores for process in found.processes] == pytest.approx([0.8, 0.8])
    times = found.step_times
    assert times is not None and sum(times.counts) == STEPS and times.longest_ms == pytest.approx(110, abs=0.1)


def test_a_run_without_anything_has_an_empty_timeline(tmp_path: Path) -> None:
    found = make_timeline(Making(tmp_path).stored())

    assert (found.curves, found.marks, found.processes, found.step_times) == ({}, (), (), None)


def test_two_gpus_are_shown_by_their_mean(making: Making) -> None:
    columns = ("t_s", "gpu", "util_percent", "own_memory_bytes")
    # A third one is somebody else's.
    making.rows("gpu", columns, [(t, gpu, 30.0 * gpu, 1e9 * (gpu < 2)) for t in (5.0, 6.0) for gpu in (0, 1, 2)])

    found = make_timeline(making.stored())

    assert found.gpus == 2 and found.curves["gpu"].values["util"] == (0.15, 0.15)


def test_workers_that_are_started_anew_are_counted_not_listed(making: Making) -> None:
    columns = ("t_s", "pid", "role", "cpu_share", "rss_bytes", "pss_bytes")
    workers = [(5.0 + n, 1000 + n, 1, n / 500, 1e9, None) for n in range(500)]
    making.rows("processes", columns, [(5.0, 9, 0, None, 3e9, 2e9), *workers])

    found = make_timeline(making.stored())

    assert (len(found.processes), found.more_processes) == (40, 461)
    main, busiest = found.processes[:2]
    assert (main.pid, main.role, main.cpu_cores, main.memory_peak_bytes) == (9, "main", None, 2e9)
    assert (busiest.pid, busiest.cpu_cores, busiest.memory_peak_bytes) == (1499, 0.998, 1e9)


def test_a_thousand_checkpoints_are_drawn_as_few(making: Making) -> None:
    process = making.process()
    for _ in range(1000):
        process.append(body("span", wire.CHECKPOINT, process.now_ns, process.now_ns + MS, -1))
        process.step(10.0)
    process.end()

    marks = make_timeline(making.stored()).marks

    assert len(marks) <= 200 and sum(mark.count for mark in marks) == 1000


def test_code_is_shown_as_it_was_and_without_secrets(tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    script = tmp_path / "train.py"
    here = Location(str(script), 6)

    found = excerpts(run, examine_run(run))[here]

    assert (found.first_line, found.lines[3]) == (3, "        loss = model(batch)")
    # WHEN it is edited after the run, nothing of it is shown.
    script.write_text(script.read_text().replace("model", "other"))
    os.utime(script)
    again = StoredRun(run.path)
    assert here not in excerpts(again, examine_run(again))
    # WHEN a password stands beside the line, it stays where it is.
    script.write_text("import torch\n\n\npassword = 'hunter2hunter2'\n\nx = 1\n")
    os.utime(script, (500.0, 500.0))
    last = StoredRun(run.path)
    assert "hunter2" not in str(excerpts(last, examine_run(last)))


def test_settings_that_never_arrived_are_told_from_those_that_did() -> None:
    run = next(case.run for case in CASES if case.found)

    from dataclasses import replace

    from flatout.diagnose.findings import find_problems

    judged = replace(run, report=replace(run.report, findings=find_problems(run, [])))
    lines = {line.name: line for line in setting_lines(judged)}

    lost = [line for line in lines.values() if line.state == "lost"]
    assert lost and all(line.configured != line.live and line.place for line in lost)
    assert all(line.configured is None for line in lines.values() if line.state == "not configured")
