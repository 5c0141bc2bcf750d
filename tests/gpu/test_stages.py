"""Stages on the device's own timeline, and that nothing waits for the device or differs for it."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu
STAGES = ("--stages",)


def test_milliseconds_are_those_of_the_device(watch: Watch) -> None:
    seen = watch("known_stages.py", options=STAGES)

    assert seen.returncode == 0, seen.stderr
    stages = {stage["name"]: stage for stage in seen.json["stages"]}
    for name, (forward_ms, backward_ms) in seen.truth["stages"].items():
        assert stages[name]["forward_ms"] == pytest.approx(forward_ms, rel=0.1, abs=0.3), name
        assert stages[name]["backward_ms"] == pytest.approx(backward_ms, rel=0.1, abs=0.3), name


def test_training_is_the_same_to_the_bit(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("stages.py")
    seen = watch("stages.py", options=STAGES)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth
    assert seen.json["stages"]


def test_nothing_of_it_synchronises(watch: Watch) -> None:
    seen = watch("strict.py", options=STAGES)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]


@pytest.mark.parametrize("form", ["whole", "loaderless", "callables"])
def test_cuda_graphs_are_captured_as_without(watch: Watch, run_bare: Run, form: str) -> None:
    bare = run_bare("cuda_graph.py", form)
    seen = watch("cuda_graph.py", form, options=STAGES)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses


def test_no_device_memory_is_held(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("memory_peak.py")
    seen = watch("memory_peak.py", options=STAGES)

    assert seen.truth["allocated"] == pytest.approx(bare.truth["allocated"], abs=1 << 20)
    assert seen.truth["reserved"] == pytest.approx(bare.truth["reserved"], abs=4 << 20)
