"""Who had the processors: the run itself, others, its quota, or other virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from flatout.attach import wire
from flatout.diagnose.machine import machine_use, run_delay_ms, widen_gains
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.summary import summarise_run
from flatout.records.machine import MachineUse, NotRunning
from flatout.records.message import NOTHING
from flatout.records.report import Finding, Gain
from flatout.words import chinese, english
from tests.unit.making import Making, body

_SHARED = ("t_s", "cores", "busy_s", "steal_s", "own_s")
_THREADS = ("t_s", "pid", "tid", "run_s", "delay_s")
_ENVIRONMENT = {"cpus": 2, "cpus_allowed": 2, "neighbours": {"4711": "stress-ng"}}
# Steps of 10 ms from the fifth to the fifteenth second.
_STEPS, _FROM_S, _TO_S = 1000, 5, 15


def made(tmp_path: Path, shared: Mapping[str, float], threads: Mapping[tuple[int, int], tuple[float, float]], **more):
    """A run of ten seconds. Values are seconds a second; `threads` by number: running, and ready but not running."""
    making = Making(tmp_path)
    process = making.process(100, start_ns=_FROM_S * 10**9)
    if tid := more.pop("tid", None):
        process.text("thread", {"tid": tid})
    process.steps(_STEPS, wall_ms=10.0, phases={"forward": 0.5, "backward": 0.5})
    process.end()
    if more.pop("lines", False):
        lines = making.lines(pid=100)
        lines.text("line", {"id": 1, "file": "train.py", "line": 6, "function": "main"})
        lines.append(body("line", 1, wire.FORWARD, 400, 4.0, 2, 0, 0))
        lines.end()
    moments = [0.2 * place for place in range(5 * 20)]
    at = {name: shared.get(name, 0.0) for name in ("busy_s", "steal_s", "own_s")}
    rows = [(t, shared.get("cores", 2.0), *(t * rate for rate in at.values())) for t in moments]
    making.rows("shared", _SHARED, rows)
    making.rows(
        "threads",
        _THREADS,
        [(t, pid, tid, t * run, t * delay) for t in moments for (pid, tid), (run, delay) in threads.items()],
    )
    for source, (columns, values) in more.pop("rows", {}).items():
        making.rows(source, columns, values)
    return making.stored(environment={**_ENVIRONMENT, **more})


def use_of(run) -> MachineUse:
    use = machine_use(run, training_ranks(run))
    assert use is not None
    return use


def test_others_that_have_the_processors_are_named_with_their_share(tmp_path: Path) -> None:
    looks = [(t, 4711, 1.2, 2.0) for t in (4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0)]
    rows = {"neighbours": (("t_s", "pid", "cores", "span_s"), looks)}
    run = made(tmp_path, {"busy_s": 2.0, "own_s": 0.8}, {(100, 100): (0.59, 0.41)}, rows=rows)

    use = use_of(run)

    assert use.disturbed and use.training is not None
    assert use.training.share == use.training.by_others == pytest.approx(0.41)
    assert use.training.by_own == pytest.approx(0.0) and use.training.by_quota == 0.0
    assert (use.cores, use.own_cores, use.other_cores) == pytest.approx((2.0, 0.8, 1.2))
    assert english(use.sentence) == (
        "Other processes had 1.2 cores of 2: the training thread was ready to run but not running for 41% of the "
        "steady part because of them (stress-ng pid 4711: 1.2)."
    )
    assert "stress-ng pid 4711" in chinese(use.sentence)
    assert run_delay_ms(run, training_ranks(run)) == pytest.approx(4.1, rel=0.05)


def test_a_disturbed_run_is_not_healthy_and_says_so(tmp_path: Path) -> None:
    quiet = summarise_run(made(tmp_path / "a", {"busy_s": 1.02, "own_s": 1.0}, {(100, 100): (0.99, 0.002)}))
    disturbed = summarise_run(made(tmp_path / "b", {"busy_s": 2.0, "own_s": 0.8}, {(100, 100): (0.59, 0.41)}))

    assert quiet.verdict.healthy and quiet.machine is not None and quiet.machine.sentence is None
    assert not disturbed.verdict.healthy and disturbed.machine is not None and disturbed.machine.disturbed
    assert "machine.consequence" in {notice.id for notice in disturbed.notices}
    assert not any(notice.id.startswith("machine.") for notice in quiet.notices)


def test_a_run_with_more_threads_than_processors_keeps_itself_waiting(tmp_path: Path) -> None:
    threads = {(100, tid): (0.5, 0.5) for tid in (100, 101, 102, 103)}
    use = use_of(made(tmp_path, {"busy_s": 2.0, "own_s": 1.98}, threads))

    assert not use.disturbed and use.sentence is None and use.training is not None
    assert use.training.share == pytest.approx(0.5) and use.training.by_own == pytest.approx(0.5, abs=0.01)


def test_what_others_add_to_own_waiting_is_told_apart(tmp_path: Path) -> None:
    """Three threads of the run and two of others on one core: alone they would wait 2/3 of the time, not 4/5."""
    threads = {(100, tid): (0.2, 0.8) for tid in (100, 101, 102)}
    use = use_of(made(tmp_path, {"busy_s": 1.0, "own_s": 0.6, "cores": 1.0}, threads))

    assert use.training is not None
    assert use.training.by_others == pytest.approx(0.8 - 2 / 3, abs=0.01)
    assert use.training.by_own == pytest.approx(2 / 3, abs=0.01)


def test_a_quota_is_not_the_doing_of_others(tmp_path: Path) -> None:
    moments = [float(t) for t in range(20)]
    rows = {"cgroup": (("t_s", "throttled_s"), [(t, 0.5 * t) for t in moments])}
    shared = {"busy_s": 30.0, "own_s": 1.0, "cores": 64.0}
    use = use_of(made(tmp_path, shared, {(100, 100): (0.4, 0.6)}, rows=rows, cpu_quota_cores=1.0))

    assert use.training is not None and use.cores == 1.0
    assert use.training.by_quota == pytest.approx(0.5) and use.training.by_others == pytest.approx(0.0)
    assert not use.disturbed and use.sentence is not None and use.sentence.id == "machine.quota"


def test_steal_is_the_doing_of_others(tmp_path: Path) -> None:
    use = use_of(made(tmp_path, {"busy_s": 0.8, "own_s": 0.8, "steal_s": 0.2}, {(100, 100): (0.8, 0.0)}))

    assert use.training is not None and use.training.by_steal == pytest.approx(0.16)
    assert use.disturbed and use.sentence is not None and use.sentence.id == "machine.steal"


def test_a_delayed_worker_or_compute_thread_is_a_disturbance_too(tmp_path: Path) -> None:
    roles = {"processes": (("t_s", "pid", "role", "cpu_share"), [(t, 200, 1, 0.5) for t in range(20)])}
    threads = {(100, 100): (0.9, 0.0), (100, 101): (0.7, 0.2), (100, 102): (0.001, 0.0), (200, 200): (0.5, 0.4)}
    use = use_of(made(tmp_path, {"busy_s": 2.0, "own_s": 1.4}, threads, rows=roles))

    assert use.training is not None and use.helpers is not None and use.workers is not None
    assert (use.training.share, use.helpers.share, use.workers.share) == pytest.approx((0.0, 0.2, 0.4), abs=1e-6)
    assert use.disturbed and "the loader's workers were" in english(use.sentence)


def test_the_thread_that_trains_need_not_be_the_first(tmp_path: Path) -> None:
    threads = {(100, 100): (0.0, 0.0), (100, 105): (0.7, 0.3)}
    use = use_of(made(tmp_path, {"busy_s": 2.0, "own_s": 0.7}, threads, tid=105))

    assert use.training is not None and use.training.share == pytest.approx(0.3)


def test_what_was_not_counted_is_not_measured(making: Making) -> None:
    process = making.process(100, start_ns=_FROM_S * 10**9)
    process.steps(_STEPS, wall_ms=10.0)
    process.end()
    run = making.stored()

    assert machine_use(run, training_ranks(run)) is None and run_delay_ms(run, training_ranks(run)) is None
    assert machine_use(run, ()) is None


@pytest.mark.parametrize(("pressure", "disturbed"), [(68.0, True), (2.0, False)])
def test_a_recording_without_threads_tells_by_full_processors(making: Making, pressure: float, disturbed: bool) -> None:
    process = making.process(100, start_ns=_FROM_S * 10**9)
    process.steps(_STEPS, wall_ms=10.0)
    process.end()
    making.rows("host", ("t_s", "cpu_share", "cpu_pressure_percent"), [(t, 0.98, pressure) for t in range(20)])
    making.rows("processes", ("t_s", "pid", "role", "cpu_share"), [(t, 100, 0, 0.8) for t in range(20)])

    use = use_of(making.stored(environment=_ENVIRONMENT))

    assert use.training is None and use.disturbed is disturbed
    assert use.own_cores == pytest.approx(0.8) and use.other_cores == pytest.approx(1.16)
    assert not disturbed or "not measured" in english(use.sentence)


def finding(low: float, mid: float, high: float) -> Finding:
    return Finding("IN101", "input", "t", "high", None, {}, NOTHING, None, None, Gain(low, mid, high, NOTHING))


def test_gains_of_a_disturbed_run_are_wider(tmp_path: Path) -> None:
    use = MachineUse(2.0, training=NotRunning(0.4, by_others=0.4), disturbed=True)

    (wider,) = widen_gains([finding(1.9, 2.0, 2.1)], use)

    assert wider.predicted_gain is not None and wider.predicted_gain.mid == 2.0
    # What the change saves lost twice as much as a part of its size usually does; or what it leaves did.
    assert wider.predicted_gain.low == pytest.approx((1 - 0.4) / (1 / 1.9 - (0.4 - 0.8 * (1 - 1 / 1.9))))
    assert wider.predicted_gain.high == pytest.approx((1 - 0.4) / ((1 - 0.8) / 2.1))
    most = widen_gains([finding(1.0, 3.0, 20.0)], use)[0].predicted_gain
    assert most is not None and most.low == 1.0 and most.high == pytest.approx(60.0)
    assert widen_gains([finding(1.9, 2.0, 2.1)], None)[0].predicted_gain == finding(1.9, 2.0, 2.1).predicted_gain


def test_others_on_the_gpu_are_a_notice(tmp_path: Path) -> None:
    rows = {"gpu": (("t_s", "gpu", "other_processes"), [(t, 0, 2.0) for t in range(20)])}
    report = summarise_run(made(tmp_path, {"busy_s": 1.0, "own_s": 1.0}, {(100, 100): (0.99, 0.0)}, rows=rows))

    assert report.machine is not None and report.machine.gpu_processes == 2.0 and not report.machine.disturbed
    assert "machine.gpu_shared" in {notice.id for notice in report.notices}
