"""The calls that led to where the training thread was seen."""

from __future__ import annotations

import pytest

from flatout.attach import wire
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.sites import call_paths
from flatout.diagnose.summary import summarise_run
from flatout.records.report import Location
from tests.unit.making import Making, body


def test_paths_come_to_the_time_of_their_phase(making: Making) -> None:
    process = making.process()
    process.steps(50, 10.0, {"forward": 0.4, "backward": 0.6})
    process.end()
    lines = making.lines()
    for number in range(3):
        lines.text("line", {"id": number, "file": "train.py", "line": number + 1, "function": "main"})
    lines.append(body("line", 0, wire.FORWARD, 20, 0.2, wire.NATIVE, 1, 0))
    lines.append(body("line", 1, wire.BACKWARD, 30, 0.3, wire.NATIVE, 0, 0))
    paths = [[[2, 0], wire.FORWARD, 0.15, 15], [[0], wire.FORWARD, 0.05, 5], [[2, 1], wire.BACKWARD, 0.3, 30]]
    lines.text("paths", {"since_ns": 0, "paths": paths})
    # Of a slice that is not steady, or in which no line was seen.
    lines.text("paths", {"since_ns": 7, "paths": [[[1], wire.FORWARD, 9.0, 900]]})
    run = making.stored()

    found = call_paths(training_ranks(run), summarise_run(run).phases)

    def at(*numbers: int) -> tuple[Location, ...]:
        return tuple(Location("train.py", number) for number in numbers)

    assert [(path.lines, path.phase, path.looks) for path in found] == [
        (at(3, 2), "backward", 30.0),
        (at(3, 1), "forward", 15.0),
        (at(1), "forward", 5.0),
    ]
    assert [path.ms for path in found] == pytest.approx([6.0, 3.0, 1.0])


def test_an_older_recording_has_none(making: Making) -> None:
    process = making.process()
    process.steps(50)
    process.end()
    run = making.stored()

    assert call_paths(training_ranks(run), summarise_run(run).phases) == ()
