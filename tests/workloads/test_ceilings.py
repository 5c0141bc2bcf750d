"""The ceilings of the workloads benchmark: batches replayed, and the loader alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workloads.projects import ROOT, WORKLOADS, Ended, start, watched

REPLAY = ROOT / "benchmarks" / "children" / "replay.py"
LOADER_ALONE = ROOT / "benchmarks" / "children" / "loader_alone.py"
SCRIPT = WORKLOADS / "gray_cnn" / "train.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ceilings") / "data"


def test_with_replayed_batches_the_training_never_waits_and_takes_as_many_steps(data: Path, tmp_path: Path) -> None:
    arguments = ("--size", "tiny", "--data", data, "--steps", "30", "--out", tmp_path / "out")

    before = watched("gray_cnn", tmp_path / "before.json", *arguments)
    replayed = watched("gray_cnn", tmp_path / "replayed.json", "--batches", "2", SCRIPT, *arguments, script=REPLAY)

    assert replayed["run"]["steps"] == before["run"]["steps"] == 30
    assert replayed["phases"]["data"]["share"] < 0.05 < before["phases"]["data"]["share"]
    assert replayed["throughput"]["samples_per_s"] > before["throughput"]["samples_per_s"]


def test_the_loader_alone_is_measured_at_the_first_backward(data: Path, tmp_path: Path) -> None:
    result = tmp_path / "loader.json"
    arguments = ("--size", "tiny", "--data", data, "--steps", "30", "--out", tmp_path / "out")

    ended: Ended = start(LOADER_ALONE, "--seconds", "1", "--result", result, SCRIPT, *arguments)

    assert ended.code == 0, ended.err
    counts = json.loads(result.read_text())
    assert counts["seconds"] >= 1
    assert counts["samples"] > counts["batches"] >= 2
