"""The window that records kernels: exact device time, and which line launches it. Afterwards launches are as quick."""

from __future__ import annotations

import json

import pytest

from tests.integration.watching import Watch, line_of

pytestmark = pytest.mark.gpu
AMPLE = json.dumps({"window_budget": 1.0})


def test_what_the_device_does_is_known_by_kind_and_line(watch: Watch) -> None:
    seen = watch("kernels.py", "plain", FLATOUT_SETTINGS=AMPLE)

    assert seen.returncode == 0, seen.stderr
    gpu = seen.json["gpu"]
    assert gpu["kernels"]["busy_ms"] == pytest.approx(seen.truth["busy_ms"], rel=0.05, abs=0.2)
    assert gpu["busy_share"] == pytest.approx(seen.truth["busy_ms"] / seen.truth["step_ms"], abs=0.05)
    lines = {(line["location"]["line"], line["phase"]): line["ms"] for line in gpu["kernels"]["lines"]}
    site = line_of("kernels.py", "# SITE forward")
    assert lines[site, "backward"] == pytest.approx(6.0, rel=0.1, abs=0.2)
    assert sum(ms for (_, phase), ms in lines.items() if phase == "forward") == pytest.approx(4.0, rel=0.1, abs=0.2)
    kinds = {kind["kind"]: kind["ms"] for kind in gpu["kernels"]["kinds"]}
    assert kinds["gemm"] > 0 and kinds["optimizer"] > 0
    assert seen.json["verdict"]["bound"] != "compute"


def test_launches_are_as_quick_as_before(watch: Watch) -> None:
    seen = watch("kernels.py", "plain", FLATOUT_SETTINGS=AMPLE)

    assert seen.json["gpu"]["kernels"] is not None
    assert seen.truth["after_us"] <= 1.15 * seen.truth["before_us"]


def test_compiled_steps_are_recorded_without_lines(watch: Watch) -> None:
    seen = watch("kernels.py", "compiled", FLATOUT_SETTINGS=AMPLE)

    assert seen.returncode == 0, seen.stderr
    kernels = seen.json["gpu"]["kernels"]
    assert kernels["busy_ms"] == pytest.approx(seen.truth["busy_ms"], rel=0.05, abs=0.2)
    assert kernels["lines"] == []


@pytest.mark.parametrize("mode", ["graph", "profiled"])
def test_none_beside_a_profiler_or_a_graph(watch: Watch, mode: str) -> None:
    seen = watch("kernels.py", mode, FLATOUT_SETTINGS=AMPLE)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]
    assert seen.json["gpu"]["kernels"] is None
    assert mode == "graph" or seen.truth["seen"] >= seen.truth["steps"]


def test_a_profiler_of_the_script_works_afterwards(watch: Watch) -> None:
    seen = watch("kernels.py", "profiles later", FLATOUT_SETTINGS=AMPLE)

    assert seen.returncode == 0, seen.stderr
    assert seen.json["gpu"]["kernels"] is not None
    assert seen.truth["seen"] > 0
