"""What the tensors of a training tell on a GPU: float64, and gradients that are mostly zero."""

from __future__ import annotations

import json

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu
OFTEN = json.dumps({"window_budget": 1.0, "window_often": True})


def test_float64_is_seen_and_nothing_is_timed_on_the_host(watch: Watch) -> None:
    seen = watch("tensors.py", "wide", "cuda")

    state = seen.json["live"]["torch"]
    assert state["grad_elements"] == {"float64": 1.0}
    assert state["float64_factors"] is None


def test_a_table_with_a_dense_gradient_is_told(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("tensors.py", "dense", "cuda")
    seen = watch("tensors.py", "dense", "cuda", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    windows = [value for recording in seen.trainings for value in recording.values("window")]
    tables = [table for window in windows for table in window["tables"]]
    assert {(table["elements"], table["picked"], table["uses"]) for table in tables} == {(50_000 * 32, 64 * 32, 1)}
