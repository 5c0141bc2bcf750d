from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from flatout.diagnose.summary import summarise_run
from flatout.records.message import verbatim
from flatout.records.report import RunReport
from flatout.words import english
from tests.unit.making import MS, Making

HOUR_NS = 3600 * 1000 * MS


def two_ranks(root: Path, *, host: str = "box", skew_ns: int = 0) -> RunReport:
    making = Making(root)
    for rank, shift in ((0, 0), (1, skew_ns)):
        process = making.process(
            100 + rank, start_ns=5_000 * MS + shift, rank=rank, world_size=2, host=("box", host)[rank]
        )
        process.steps(50, 10.0, {"data": 0.2, "forward": 0.8})
        process.end()
    launcher = making.process(99)
    launcher.text("torch", {"version": "2.13.0"})
    launcher.end()
    worker = making.process(300, role="worker")
    worker.steps(3)
    worker.end()
    return summarise_run(making.stored())


def test_samples_are_summed_and_a_common_step_is_one_step(tmp_path: Path) -> None:
    report = two_ranks(tmp_path)

    assert (report.run.ranks, report.run.steps) == (2, 50)
    assert report.throughput.steps_per_s == pytest.approx(100.0)
    assert report.throughput.samples_per_s == pytest.approx(6400.0)
    assert [(r.rank, r.steps, r.step_ms, r.ended) for r in report.ranks] == [
        (0, 50, pytest.approx(10.0), True),
        (1, 50, pytest.approx(10.0), True),
    ]


@pytest.mark.parametrize("skew_ns", [HOUR_NS, 40 * HOUR_NS, 300 * MS])
def test_a_late_or_skewed_rank_changes_nothing(tmp_path: Path, skew_ns: int) -> None:
    plain = two_ranks(tmp_path / "plain")
    skewed = two_ranks(tmp_path / "skewed", host="other", skew_ns=skew_ns)

    def durations(report: RunReport) -> RunReport:
        ranks = tuple(dataclasses.replace(rank, host=None) for rank in report.ranks)
        return dataclasses.replace(report, ranks=ranks, run=dataclasses.replace(report.run, id=""))

    assert durations(plain) == durations(skewed)


def test_the_rank_that_failed_first_is_named(making: Making) -> None:
    for rank, steps in ((0, 30), (1, 20), (2, 30)):
        process = making.process(100 + rank, rank=rank, world_size=3)
        process.steps(steps)
        process.end(exited=False)

    report = summarise_run(making.stored(exit_code=137))

    (notice,) = [n for n in map(english, report.notices) if "failed first" in n]
    assert notice.startswith("rank 1 failed first, after 20 steps") and "SIGKILL" in notice
    assert [rank.steps for rank in report.ranks] == [30, 20, 30]


def test_the_only_rank_without_a_normal_end_is_the_one(making: Making) -> None:
    for rank, exited in ((0, True), (1, False)):
        process = making.process(100 + rank, rank=rank, world_size=2)
        process.steps(30 - 10 * exited)
        process.end(exited)

    report = summarise_run(making.stored(exit_code=1))

    assert any(n.startswith("rank 1 failed first") for n in map(english, report.notices))


def test_between_hosts_nobody_is_called_the_first(making: Making) -> None:
    for rank in (0, 1):
        process = making.process(100 + rank, rank=rank, world_size=2, host=f"box{rank}", start_ns=(1 + rank) * HOUR_NS)
        process.steps(30)
        process.end(exited=False)

    notices = [english(notice) for notice in summarise_run(making.stored(exit_code=1)).notices]

    assert not any("first" in n for n in notices)
    assert any("rank 0, rank 1 did not come to a normal end" in n for n in notices)


def test_a_run_that_ended_well_blames_nobody(making: Making) -> None:
    for rank in (0, 1):
        process = making.process(100 + rank, rank=rank, world_size=2)
        process.steps(30)
        process.end(exited=False)

    assert not any(
        "failed" in n or "normal end" in n for n in map(english, summarise_run(making.stored(exit_code=0)).notices)
    )


def test_the_wall_time_is_never_negative_when_the_clock_steps_back(making: Making) -> None:
    process = making.process(start_ns=5_000 * MS)
    process.steps(30)
    process.end()
    making.directory.finish(dataclasses.replace(making.manifest, ended_unix_s=-50.0, exit_code=0))

    report = summarise_run(making.stored(wall_s=None, notices=(verbatim("the clock stepped back"),)))

    assert report.run.wall_s == pytest.approx(0.3)
    assert "the clock stepped back" in map(english, report.notices)


def test_a_negative_duration_counts_as_none(making: Making) -> None:
    process = making.process()
    process.steps(9)
    process.append(_with_wall(process.index + 1, (1 << 64) - 5))
    process.end()

    report = summarise_run(making.stored())

    assert all(share.ms >= 0 for share in report.phases.values())
    assert report.throughput.steps_per_s == pytest.approx(10 / 0.09)


def _with_wall(index: int, wall_ns: int) -> bytes:
    from tests.unit.making import body

    return body("step", index, 0, wall_ns, 1, 32, *([0.0] * 11), 0, -1, 1, 1, 0, 0, 0)
