"""What loader workers spend on a sample is measured whatever way they were started."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch, line_of

pytestmark = pytest.mark.durations


@pytest.mark.timing
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
    assert cost["fetch_ms_per_sample"] == pytest.approx(seen.truth["sample_ms"], rel=0.15)
    assert cost["collate_ms_per_sample"] == pytest.approx(seen.truth["batch_ms"] / 8, rel=0.2)
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


@pytest.mark.durations
@pytest.mark.parametrize("loader", ["torch.utils.data", "flatout"])
def test_the_time_of_a_worker_adds_up_and_each_line_has_its_nature(watch: Watch, loader: str) -> None:
    seen = watch("worker_natures.py", loader)

    assert seen.returncode == 0, seen.stderr
    ledger = seen.json["worker_ledger"]
    assert sum(ledger["parts"].values()) == pytest.approx(1.0, abs=0.02)
    assert sum(ledger["natures"].values()) == pytest.approx(1.0, abs=0.02)
    # The training waits for it all the time, so it is at work all the time.
    at_work = sum(ledger["parts"][part] for part in ("samples", "collate", "not running"))
    assert at_work > 0.9 and ledger["parts"]["not measured"] < 0.02
    (worker,) = ledger["workers"]
    assert sum(worker["parts"].values()) == pytest.approx(1.0, abs=0.02)
    # It waits for the file about a third of the time on a quiet machine, and the kernel knows that it does.
    assert 0.1 < ledger["natures"]["file"] < 0.8 and 0.2 < ledger["computing"] < 0.9
    natures = {line["location"]["line"]: line["natures"] for line in seen.json["worker_lines"]}
    for mark, nature in (("# file", "file"), ("# python", "python"), ("# numpy", "native")):
        assert natures[line_of("worker_natures.py", mark)][nature] > 0.6, natures
