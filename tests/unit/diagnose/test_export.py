"""Steps as a trace: which ones, and that it is the format that viewers read."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.export import MOST_STEPS, make_trace
from flatout.errors import FlatoutError
from flatout.records.timeline import Slice, Trace, TracedProcess, Track
from flatout.report.chrome_trace import to_chrome
from flatout.store.run import StoredRun
from tests.chrome_trace import violations
from tests.unit.making import MS, Making, body

PHASES = {"data": 0.4, "h2d": 0.05, "forward": 0.2, "backward": 0.2, "optimizer": 0.05, "sync": 0.05}
START_NS = 5_000 * MS
# Samples are of the host on which the run was started.
HOST = socket.gethostname()


def _made(tmp_path: Path) -> StoredRun:
    """Two ranks of 100 steps of 10 ms with one slow step and a checkpoint in it, a worker, telemetry, a GPU."""
    making = Making(tmp_path)
    for rank in range(2):
        process = making.process(100 + rank, rank=rank, host=HOST)
        process.text("site", {"id": 3, "op": "checkpoint", "file": "train.py", "line": 7, "function": "main"})
        process.append(body("epoch", 1, 2, START_NS, START_NS + MS))
        process.steps(60, 10.0, PHASES, queue=2)
        process.append(body("span", 7, process.now_ns + 10 * MS, process.now_ns + 80 * MS, 3))
        process.step(90.0, {"checkpoint": 0.8, "data": 0.1}, queue=0)
        process.append(body("device", process.index, 5.0, 30.0, 40.0, 5.0, 2.0, 85.0, 4, 1))
        process.steps(39, 10.0, PHASES, queue=2)
        process.end()
    worker = making.process(300, role="worker", host=HOST)
    worker.append(body("fetch", 1, 0, START_NS, START_NS + 900 * MS, 60, 1920, 500 * MS, 20 * MS, 9 * MS, 100 * MS))
    worker.close()
    moments = [5.0 + 0.1 * n for n in range(12)]
    making.rows("gpu", ("t_s", "gpu", "util_percent", "power_w"), [(t, 0, 50.0, None) for t in moments])
    making.rows("processes", ("t_s", "pid", "cpu_share"), [(t, pid, 0.5) for t in moments for pid in (100, 101)])
    return making.stored()


def _events(found: Trace) -> list[dict[str, Any]]:
    value = json.loads(to_chrome(found, "1.0"))
    assert value["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = value["traceEvents"]
    return events


def _slices(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["name"] == name]


def test_every_event_is_of_the_format(tmp_path: Path) -> None:
    events = _events(make_trace(_made(tmp_path), "1:100"))

    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["ts"], int | float) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {
        100: f"rank 0 on {HOST}",
        101: f"rank 1 on {HOST}",
        300: f"worker 300 on {HOST}",
        0: "machine",
    }


def test_a_trace_keeps_to_the_format(tmp_path: Path) -> None:
    assert violations(to_chrome(make_trace(_made(tmp_path), "1:100"), "1.0")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dur": -1.0}, "dur is"),
        ({"ts": "12"}, "ts is"),
        ({"dur": 11_000.0}, "overlaps"),
        ({"ts": 0.0}, "not in order"),
        ({"tid": 99}, "has no name"),
        ({"ph": "B"}, "unknown phase"),
        ({"cname": "pink"}, "unknown colour"),
        ({"args": [1]}, "args is"),
    ],
)
def test_the_check_of_the_format_can_fail(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    value = json.loads(to_chrome(make_trace(_made(tmp_path), "1:100"), "1.0"))
    value["traceEvents"][_place(value["traceEvents"], "step 5")] |= change

    assert any(words in violation for violation in violations(json.dumps(value)))


def _place(events: list[dict[str, Any]], name: str) -> int:
    return next(at for at, event in enumerate(events) if event["name"] == name)


_moments = st.integers(0, 200)
_slices_made = st.lists(st.tuples(_moments, _moments, st.floats(-0.4, 0.4)), min_size=1, max_size=20)


@given(_slices_made, st.booleans())
def test_slices_that_overlap_in_part_are_drawn_on_lines_of_their_own(
    made: list[tuple[int, int, float]], has_parts: bool
) -> None:
    slices = tuple(
        Slice(f"s{number}", start + jitter, float(length), {}, (Slice("part", start + jitter, length / 2),) * has_parts)
        for number, (start, length, jitter) in enumerate(made)
    )
    found = Trace("run", ((1, 1),), (TracedProcess("rank 0", 7, (Track("pauses", "pauses", slices),)),))

    text = to_chrome(found, "1.0")

    assert violations(text) == []
    names = [event["name"] for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert sorted(name for name in names if name != "part") == sorted(part_slice.name for part_slice in slices)


def test_the_phases_of_a_step_are_its_parts_in_their_usual_order(tmp_path: Path) -> None:
    events = _events(make_trace(_made(tmp_path), "5"))

    (step, other_rank) = _slices(events, "step 5")
    assert step["dur"] == 10_000 and step["args"]["samples"] == 32 and step["args"]["batches_ready"] == 2
    assert other_rank["ts"] == step["ts"]
    mine = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (100, 1)][1:]
    assert [event["name"] for event in mine] == ["data", "h2d", "forward", "sync", "backward", "optimizer", "other"]
    assert mine[0]["dur"] == pytest.approx(4000, abs=1)
    assert sum(event["dur"] for event in mine) == pytest.approx(10_000, abs=1)


def test_by_default_the_slowest_and_a_typical_step_are_shown_with_their_neighbours(tmp_path: Path) -> None:
    found = make_trace(_made(tmp_path))

    # The nearest typical one is a neighbour already, so that both are one stretch.
    assert found.steps == ((58, 63),)
    # On the host and on the device, of both ranks.
    assert len(_slices(_events(found), "step 61")) == 4


def test_a_typical_step_far_from_the_slowest_is_a_stretch_of_its_own(making: Making) -> None:
    process = making.process()
    for wall_ms in [10.0] * 60 + [20.0] * 20 + [50.0] + [20.0] * 20 + [10.0] * 60:
        process.step(wall_ms, PHASES)
    process.end()

    assert make_trace(making.stored()).steps == ((58, 62), (79, 83))


def test_pauses_are_at_their_own_times_with_their_place(tmp_path: Path) -> None:
    events = _events(make_trace(_made(tmp_path), "61:61"))

    pause = next(event for event in _slices(events, "checkpoint") if event["cat"] == "pauses")
    (step, *_) = _slices(events, "step 61")
    assert pause["ts"] == pytest.approx(step["ts"] + 10_000)
    assert pause["dur"] == 70_000
    assert pause["args"] == {"at": "train.py:7"}


def test_device_worker_loader_and_counters_are_there(tmp_path: Path) -> None:
    events = _events(make_trace(_made(tmp_path), ":"))

    device = [event for event in events if event.get("cat") == "device" and event["pid"] == 100]
    assert [event["name"] for event in device] == ["step 61", "starved", "forward", "backward", "optimizer", "other"]
    assert device[1]["dur"] == 5000
    assert _slices(events, "60 batches")[0]["args"] == {"samples": 1920, "busy_ms": 520.0}
    assert _slices(events, "new iterator of loader 1")[0]["args"] == {"workers": 2}
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"GPU 0 utilisation (%)", "CPU of the run (cores)", "batches ready"} <= counters
    # What was not measured has no counter at all.
    assert "GPU 0 power (W)" not in counters
    cores = [event["args"]["value"] for event in events if event["name"] == "CPU of the run (cores)"]
    assert set(cores) == {1.0}


@pytest.mark.parametrize("steps", ["0:5", "7:3", "101:", "a:b", "1:2:3", "-1:4", "1-5"])
def test_steps_that_are_not_there_are_one_line(tmp_path: Path, steps: str) -> None:
    with pytest.raises(FlatoutError, match="--steps"):
        make_trace(_made(tmp_path), steps)


def test_too_many_steps_are_refused_and_as_many_as_allowed_are_some_megabytes(making: Making) -> None:
    process = making.process()
    process.steps(MOST_STEPS + 1, 10.0, PHASES, queue=2)
    process.end()
    run = making.stored()

    with pytest.raises(FlatoutError, match="too many, at most 4,000"):
        make_trace(run, ":")

    assert len(to_chrome(make_trace(run, f"1:{MOST_STEPS}"), "1.0")) < 8e6


def test_records_that_hold_several_steps_and_a_run_of_one_step_can_be_traced(tmp_path: Path) -> None:
    making = Making(tmp_path)
    process = making.process()
    process.steps(4, 10.0, PHASES, steps=8)
    process.end()
    single = Making(tmp_path)
    process = single.process()
    process.step(10.0, PHASES)
    process.end()

    merged = _events(make_trace(making.stored(), "10:12"))

    assert len(_slices(merged, "steps 9–16")) == 1
    assert make_trace(single.stored()).steps == ((1, 1),)


def test_a_rank_of_another_host_is_put_beside_by_the_calendar(making: Making) -> None:
    for rank, (host, ahead_ns) in enumerate((("here", 10**18), ("there", 10**18 - 7_000 * MS))):
        start_ns = START_NS + 7_000 * MS * rank
        process = making.process(100 + rank, start_ns, rank=rank, host=host, start_unix_ns=start_ns + ahead_ns)
        process.steps(10, 10.0, PHASES)
        process.end()

    found = make_trace(making.stored(), "3")

    first, second = _slices(_events(found), "step 3")
    assert first["ts"] == pytest.approx(second["ts"])
    assert any("calendar clocks" in note for note in found.notes)


def test_a_run_without_steps_has_no_trace(tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="no training step"):
        make_trace(Making(tmp_path).stored())
