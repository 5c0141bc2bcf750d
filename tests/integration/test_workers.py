"""What loader workers spend on a sample is measured whatever way they were started."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch


@pytest.mark.parametrize("method", ["none", "fork", "spawn", "forkserver"])
def test_cost_per_sample_in_workers(watch: Watch, run_bare: Run, method: str) -> None:
    seen = watch("workers.py", method)

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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_train_the_same_numbers(watch: Watch, run_bare: Run, method: str) -> None:
    assert watch("workers.py", method).losses == run_bare("workers.py", method).losses
