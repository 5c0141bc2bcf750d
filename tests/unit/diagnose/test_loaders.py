"""How waits for a batch are spread over the steps, and what the workers' processes took."""

from __future__ import annotations

import pytest

from flatout.diagnose.evidence import gather_evidence
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.evidence import Evidence
from flatout.store.run import StoredRun
from tests.unit.making import MS, Making, Process, body

START = 5_000 * MS
SETTINGS = {"file": "train.py", "line": 5, "num_workers": 1, "batch_size": 8, "persistent_workers": False}


def evidence(run: StoredRun) -> Evidence:
    return gather_evidence(run, training_ranks(run), summarise_run(run))


def epoch(process: Process, number: int = 1) -> None:
    process.append(body("epoch", number, 1, process.now_ns, process.now_ns + 40 * MS))


def fetching(making: Making, batch_ms: float) -> None:
    worker = making.process(pid=200, role="worker", ppid=100, start_ns=START + MS)
    spent = int(10 * batch_ms * MS)
    worker.append(body("fetch", 0xFFFFFFFF, 0, START + MS, START + 100 * MS, 10, 80, spent, 0, int(batch_ms * MS), 0))
    worker.close()


def begun(making: Making) -> Process:
    process = making.process(pid=100)
    process.text("loader", {"id": 1, **SETTINGS})
    process.text("workers", {"loader": 1, "pids": [200], "start_ns": START})
    process.text("torch", {"training_loaders": [1]})
    return process


def test_the_first_step_of_an_epoch_is_told_from_the_others(making: Making) -> None:
    process = begun(making)
    for _ in range(5):
        epoch(process)
        process.step(110.0, {"data": 100 / 110}, queue=0)
        process.steps(19, 12.0, {"data": 2 / 12}, queue=3)
    process.end()

    waiting = evidence(making.stored()).waiting

    assert waiting is not None and waiting.first_ms == pytest.approx(100.0, rel=0.01)
    # The first epoch's start is warm-up.
    assert waiting.first_share == pytest.approx(4 / 99)
    assert (waiting.rest_ms, waiting.median_ms) == (pytest.approx(2.0), pytest.approx(2.0))
    assert (waiting.empty_share, waiting.ready_ms) == (0.0, pytest.approx(2.0))


def test_the_passes_of_a_first_step_may_take_longer(making: Making) -> None:
    process = begun(making)
    for _ in range(5):
        epoch(process)
        process.step(150.0, {"data": 100 / 150, "eval": 20 / 150, "forward": 24 / 150, "optimizer": 6 / 150}, queue=0)
        process.steps(19, 12.0, {"data": 2 / 12, "forward": 8 / 12, "optimizer": 2 / 12}, queue=3)
    process.end()

    waiting = evidence(making.stored()).waiting

    # An evaluation between two epochs is no pass.
    assert waiting is not None and waiting.first_slower_ms == pytest.approx(20.0, rel=0.01)


def test_a_late_batch_is_one_that_takes_far_longer_than_the_mean(making: Making) -> None:
    process = begun(making)
    fetching(making, batch_ms=20.0)
    for _ in range(10):
        process.steps(9, 11.0, {"data": 1 / 11}, queue=2)
        process.step(110.0, {"data": 100 / 110}, queue=0)
    process.end()

    waiting = evidence(making.stored()).waiting

    assert waiting is not None and waiting.late_share == pytest.approx(0.1)
    assert waiting.late_ms == pytest.approx(10.0) and waiting.rest_ms == pytest.approx(10.9)
    assert waiting.empty_share == pytest.approx(0.1)


def test_an_iterator_for_every_step(making: Making) -> None:
    process = begun(making)
    for _ in range(20):
        epoch(process)
        process.step(50.0, {"data": 0.8})
    process.end()

    waiting = evidence(making.stored()).waiting

    assert waiting is not None and (waiting.first_share, waiting.rest_ms) == (1.0, 0.0)
    assert waiting.first_ms == pytest.approx(40.0, rel=0.01)


def test_too_few_steps_say_nothing(making: Making) -> None:
    process = begun(making)
    process.steps(6)
    process.end()

    assert evidence(making.stored()).waiting is None


def test_processor_time_of_the_workers_and_of_the_training_process(making: Making) -> None:
    process = begun(making)
    process.steps(100, 20.0, queue=1)
    process.end()
    columns = ("t_s", "pid", "role", "cpu_share", "threads", "read_bytes_per_s", "major_faults_per_s")
    of_each = ((100, 0, 0.9, 20, 0, 0), (200, 1, 0.1, 3, 5e6, None), (9, 2, 5, 1, 0, 0))
    making.rows("processes", columns, [(5.2 + 0.2 * i, *values) for i in range(8) for values in of_each])

    found = evidence(making.stored())

    assert found.main_cpu_share == pytest.approx(0.9)
    (use,) = found.loaders
    assert use.processes is not None and use.processes.cpu_share == pytest.approx(0.1)
    assert use.processes.read_bytes_per_s == pytest.approx(5e6) and use.processes.major_faults_per_s is None
