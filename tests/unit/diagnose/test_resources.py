"""What detectors learn of the machine: evaluations, memory by role, kernel kills, each GPU by itself."""

from __future__ import annotations

from pathlib import Path

from flatout.attach import wire
from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.resources import evaluations, gpu_states, host_use, memory_by_role, oom_kill, parts_ms_by_rank
from tests.unit.making import MS, Making, body

_EVAL = wire.PHASES.index("eval")
_PROCESSES = ("t_s", "pid", "role", "rss_bytes")
_GPU = ("t_s", "gpu", "own_memory_bytes", "memory_used_bytes", "memory_total_bytes", "sm_clock_mhz", "throttle_bits")


def test_evaluations_are_those_between_steps(making: Making) -> None:
    process = making.process()
    process.steps(20)
    for after_ms, lasted_ms in ((50, 20), (120, 40), (900, 500)):  # the last one comes after the last step
        start_ns = 5_000 * MS + after_ms * MS
        process.append(body("span", _EVAL, start_ns, start_ns + lasted_ms * MS, -1))
    process.end()
    run = making.stored()

    found = evaluations(run, training_ranks(run), [])

    assert found is not None
    assert found.count == 2
    assert round(found.median_s, 3) == 0.03


def test_without_an_evaluation_there_is_none(making: Making) -> None:
    process = making.process()
    process.steps(5)
    process.end()
    run = making.stored()

    assert evaluations(run, training_ranks(run), []) is None


def test_memory_is_summed_over_ranks_and_a_mean_over_workers(making: Making) -> None:
    rows = [(t, pid, role, 100.0 * pid * t) for t in (1.0, 2.0) for pid, role in ((1, 0), (2, 0), (3, 1), (5, 1))]
    making.rows("processes", _PROCESSES, rows)

    found = memory_by_role(making.stored(), [])

    assert found["main_rss_bytes"][1].tolist() == [300.0, 600.0]
    assert found["worker_rss_bytes"][1].tolist() == [400.0, 800.0]
    assert found["workers_alive"][1].tolist() == [2.0, 2.0]


def test_memory_that_grew_before_the_first_step_is_no_trend(making: Making) -> None:
    process = making.process()
    process.steps(20)
    process.end()
    importing = [(0.2 * tick, 1, 0, 1e7 * tick) for tick in range(20)]  # the steps begin at 5 s and last 0.2 s
    making.rows("processes", _PROCESSES, importing)
    run = making.stored()

    assert memory_by_role(run, training_ranks(run)) == {}


def test_the_largest_process_that_was_gone_when_the_count_moved_is_named(making: Making) -> None:
    making.rows("cgroup", ("t_s", "oom_kills"), [(1.0, 4.0), (5.0, 4.0), (6.0, 5.0), (9.0, 5.0)])
    lives = [(t / 2, 1, 0, 5e9) for t in range(2, 20)] + [(t / 2, 7, 1, 9e9) for t in range(2, 11)]
    making.rows("processes", _PROCESSES, sorted(lives))

    found = oom_kill(making.stored())

    assert found is not None
    assert (found.kills, found.role, found.pid, found.rss_bytes) == (1, "worker", 7, 9e9)


def test_kills_of_an_earlier_run_are_not_ours(making: Making) -> None:
    making.rows("cgroup", ("t_s", "oom_kills"), [(1.0, 4.0), (9.0, 4.0)])

    assert oom_kill(making.stored()) is None


def test_a_gpu_is_judged_by_itself_and_the_power_cap_is_no_slowdown(making: Making) -> None:
    hot, capped = 0x20, 0x04
    rows = [(t, 0, 4e9, 5e9, 8e10, 1200.0, hot) for t in (1.0, 2.0, 3.0)]
    rows += [(t, 1, 4e9, 7e9, 8e10, 1500.0, capped) for t in (1.0, 2.0)] + [(3.0, 1, 4e9, 6e9, 8e10, 1980.0, 0)]
    rows += [(1.0, 2, 0.0, 1e9, 8e10, 1980.0, hot)]  # nothing of ours on it
    making.rows("gpu", _GPU, rows)

    first, second = gpu_states(making.stored(), [])

    assert first.throttled == {"software thermal": 1.0}
    assert first.slowed_clock_mhz == 1200.0
    assert second.slowed_clock_mhz is None
    assert round(second.throttled["power cap"], 2) == 0.67
    assert (second.best_clock_mhz, second.memory_used_bytes) == (1980.0, 7e9)


def test_ranks_are_compared_part_by_part(making: Making) -> None:
    for rank in (0, 1):
        process = making.process(100 + rank, rank=rank)
        process.steps(10, 10.0, {"forward": 0.5})
        process.steps(10, 10.0, {"forward": 0.9 if rank else 0.5})
        process.end()

    steady, changed = parts_ms_by_rank(training_ranks(making.stored()))

    assert len(steady) == len(changed) == 5
    assert round(steady[-1]["forward"], 2) == round(changed[0]["forward"], 2) == 5.0
    assert round(changed[-1]["forward"], 2) == 9.0


_COLUMNS = ("t_s", "pid", "role", "cpu_share", "rss_bytes", "pss_bytes")


def test_memory_is_the_most_of_all_processes_together_and_shared_pages_count_once(making: Making) -> None:
    rows = [
        (1.0, 1, 0, 1.0, 100.0, None),
        (2.0, 1, 0, 1.0, 200.0, None),
        (2.0, 2, 1, 0.5, 200.0, 80.0),
        (3.0, 1, 0, 1.0, 50.0, None),
    ]
    making.rows("processes", _COLUMNS, rows)

    found = host_use(making.stored(), [])

    assert found is not None
    assert found.memory_peak == 280


def test_busy_cores_are_the_mean_while_training(making: Making) -> None:
    process = making.process(start_ns=5_000_000_000)
    process.steps(100, wall_ms=10.0)
    process.end()
    before = [(1.0, 1, 0, 16.0, 1.0, None)]
    during = [(t_s, pid, 0, 0.75, 1.0, None) for t_s in (5.5, 5.9) for pid in (1, 2)]
    making.rows("processes", _COLUMNS, [*before, *during])
    run = making.stored()

    found = host_use(run, training_ranks(run))

    assert found is not None
    assert found.cpu_cores == 1.5


def test_nothing_sampled_is_not_measured(tmp_path: Path) -> None:
    assert host_use(Making(tmp_path).stored(), []) is None
