"""What loader workers spend on a sample is measured whatever way they were started."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch, line_of


@pytest.mark.parametrize(
    "method", ["none", "fork", *(pytest.param(name, marks=pytest.mark.variant) for name in ("spawn", "forkserver"))]
)
def test_cost_per_sample_in_workers(watch_once: Watch, method: str) -> None:
    seen = watch_once("workers.py", method)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == 20
    (cost,) = seen.json["workers"]
    assert cost["workers"] == (0 if method == "none" else 2)
    # A worker is gone without a word, so its last moments may be missing.
    assert 128 <= cost["samples"] <= 160
    assert cost["fetch_ms_per_sample"] == pytest.approx(4.2, rel=0.15)
    assert cost["collate_ms_per_sample"] == pytest.approx(8.2 / 8, rel=0.2)
    assert cost["slowest_batch_ms"] >= 40
    if method != "none":
        assert cost["startup_s"] > 0
        assert cost["queue_depth"] is not None
        assert 0 < cost["busy_share"] <= 1


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.variant)])
def test_workers_train_the_same_numbers(watch_once: Watch, run_bare: Run, method: str) -> None:
    assert watch_once("workers.py", method).losses == run_bare("workers.py", method).losses


@pytest.mark.timing
@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(name, marks=pytest.mark.variant) for name in ("spawn", "forkserver"))]
)
def test_lines_of_a_worker_are_seen_and_leave_it_alone(watch: Watch, run_bare: Run, method: str) -> None:
    seen = watch("worker_lines.py", method)

    assert seen.returncode == 0, seen.stderr
    shares = {line["location"]["line"]: line["share"] for line in seen.json["worker_lines"]}
    dear, cheap = line_of("worker_lines.py", "# dear"), line_of("worker_lines.py", "# cheap")
    assert shares[dear] == pytest.approx(0.75, abs=0.24)
    assert shares[dear] > shares.get(cheap, 0.0)
    assert all(line["phase"] == "worker" and line["ms"] >= 0 for line in seen.json["worker_lines"])
    assert all(line["phase"] != "worker" for line in seen.json["lines"])
    # Workers end at once, and draw the same random numbers.
    assert seen.truth["alive"] == 0 and seen.truth["end_s"] < 2
    if method == "fork":
        assert seen.losses == run_bare("worker_lines.py", method).losses


def test_a_cache_in_the_workers_is_looked_at_from_outside(watch: Watch) -> None:
    seen = watch("worker_lines.py", "fork")

    found = [value for recording in seen.stored.recordings for value in recording.values("cache")]
    assert {value["name"] for value in found} == {"Spinning.cache"}
    last = found[-1]
    assert last["kind"] == "dict" and last["entries"] == 4 and last["first"] == [4, 4]
    assert last["thrown_out"] > 0 and last["new_keys"] == last["seen_samples"]
