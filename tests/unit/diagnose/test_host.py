"""What the watched processes took of the host."""

from __future__ import annotations

from pathlib import Path

from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.resources import host_use
from tests.unit.making import Making

_COLUMNS = ("t_s", "pid", "role", "cpu_share", "rss_bytes", "pss_bytes")


def test_memory_is_the_most_of_all_processes_together_and_shared_pages_count_once(tmp_path: Path) -> None:
    making = Making(tmp_path)
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


def test_busy_cores_are_the_mean_while_training(tmp_path: Path) -> None:
    making = Making(tmp_path)
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
