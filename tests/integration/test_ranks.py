"""Several ranks under torchrun: each is recorded, none is disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.watching import Run, Watch, Watched, assert_phases_tile

TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2", "ddp.py")


def by_rank(truths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(truths, key=lambda truth: truth["rank"])


@pytest.fixture(scope="module")
def seen(watch: Watch) -> Watched:
    return watch(*TORCHRUN)


def test_every_rank_is_recorded(seen: Watched) -> None:
    assert seen.returncode == 0, seen.stderr
    assert seen.json["run"]["ranks"] == 2
    assert [r.facts["rank"] for r in seen.trainings] == [0, 1]
    assert [r.facts["world_size"] for r in seen.trainings] == [2, 2]
    for recording in seen.trainings:
        assert recording.records["step"]["steps"].sum() == 60
        assert recording.records["step"]["samples"].sum() == 480
        assert_phases_tile(recording.records["step"])


@pytest.mark.durations
def test_throughput_is_that_of_all_ranks(seen: Watched) -> None:
    wall_s = [(t["end_ns"] - t["first_end_ns"]) * 1e-9 for t in seen.told("TRUTH")]

    expected = sum(59 * 8 / s for s in wall_s)

    assert seen.json["throughput"]["samples_per_s"] == pytest.approx(expected, rel=0.2)


def test_no_collective_of_ours_and_the_same_losses(seen: Watched, run_bare: Run) -> None:
    bare = by_rank(run_bare(*TORCHRUN).told("TRUTH"))
    watched = by_rank(seen.told("TRUTH"))

    assert [t["sequence"] for t in watched] == [t["sequence"] for t in bare]
    assert [t["loss"] for t in watched] == [t["loss"] for t in bare]


def test_a_killed_rank_leaves_the_others_readable_and_is_named(watch: Watch) -> None:
    seen = watch(*TORCHRUN, "--kill")

    assert seen.returncode != 0
    counts = {r.facts["rank"]: int(r.records["step"]["steps"].sum()) for r in seen.trainings}
    assert counts.keys() == {0, 1}
    # What was not yet on record when they died is lost: some 100 ms, at 5 ms a step and more.
    assert 10 <= counts[0] <= 51
    assert 10 <= counts[1] <= 50
    assert any("rank 1" in notice for notice in seen.json["notices"]), seen.json["notices"]


@pytest.mark.variant
def test_a_rank_that_starts_late_is_no_straggler(watch: Watch) -> None:
    seen = watch(*TORCHRUN, "--late")

    assert seen.returncode == 0
    told = str(seen.json["findings"]) + str(seen.json["verdict"]) + str(seen.json["notices"])
    assert "straggler" not in told.lower()
    assert "slowest rank" not in told.lower()


@pytest.mark.variant
def test_ranks_without_a_launcher(watch: Watch, tmp_path: Path) -> None:
    seen = watch("mp_spawn.py", str(tmp_path / "store"))

    assert seen.returncode == 0, seen.stderr
    assert [int(r.records["step"]["steps"].sum()) for r in seen.trainings] == [20, 20]
    assert [r.records["step"]["samples"].sum() for r in seen.trainings] == [160, 160]
    assert seen.json["run"]["ranks"] == 2
