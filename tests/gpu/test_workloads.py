"""On a GPU the reference workloads do what their tests count on a CPU: they wait, and they copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workloads.projects import watched

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    here = tmp_path_factory.mktemp("workloads")

    def report(name: str, steps: int, *more: str) -> dict[str, Any]:
        arguments: tuple[str | Path, ...] = ("--size", "tiny", "--device", "cuda", "--data", here / name)
        return watched(name, here / f"{name}.json", *arguments, "--steps", str(steps), "--out", here / "out", *more)

    return {
        "avatar_splat": report("avatar_splat", 120, "--viewer", "off"),
        "heatmap_npy": report("heatmap_npy", 40),
    }


def written(report: dict[str, Any]) -> float:
    return sum(site["per_step"] for site in report["syncs"] if site["ms"] is not None)


def hidden(report: dict[str, Any]) -> float:
    return sum(site["per_step"] for site in report["syncs"] if site["op"] == "hidden")


def test_the_avatar_waits_some_seventeen_times_a_step(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["avatar_splat"]

    assert written(report) >= 7
    assert hidden(report) >= 9


def test_the_avatar_s_samples_are_copied_tensor_by_tensor_and_never_pinned(reports: dict[str, dict[str, Any]]) -> None:
    copies = reports["avatar_splat"]["copies"]

    assert sum(site["per_step"] for site in copies) >= 11
    assert max(site["pinned_share"] for site in copies) == 0


def test_the_detector_s_targets_wait_for_every_point(reports: dict[str, dict[str, Any]]) -> None:
    # Eight samples of two points, two numbers each, and what the step reads besides.
    assert written(reports["heatmap_npy"]) >= 8 * 2 * 2 + 5
