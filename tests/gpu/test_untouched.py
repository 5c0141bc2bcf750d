"""CUDA graphs, torch.compile, AMP and memory are what they were without us."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch, assert_phases_tile

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("form", ["whole", "loaderless", "callables"])
def test_cuda_graphs_work_the_same_and_replays_are_steps(watch: Watch, run_bare: Run, form: str) -> None:
    bare = run_bare("cuda_graph.py", form)
    seen = watch("cuda_graph.py", form)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.step_count == seen.truth["steps"]
    if form != "loaderless":
        assert int(seen.steps["samples"][-40:].sum()) == 40 * 16
    assert_phases_tile(seen.steps)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile_breaks_and_recompiles_equal_bare(watch: Watch, run_bare: Run, mode: str) -> None:
    bare = run_bare("compiled_cuda.py", mode)
    if bare.returncode:
        pytest.skip(f"torch.compile does not work on this machine: {bare.stderr.strip().splitlines()[-1]}")
    seen = watch("compiled_cuda.py", mode)

    assert seen.returncode == 0, seen.stderr
    assert seen.told("COUNTERS") == bare.told("COUNTERS")
    assert seen.losses == bare.losses
    assert seen.step_count == seen.truth["steps"]


def test_amp_with_a_skipped_step(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("amp_cuda.py")
    seen = watch("amp_cuda.py")

    assert seen.losses == bare.losses
    assert seen.truth == bare.truth
    assert seen.step_count == 30
    assert [i for i, flags in enumerate(seen.steps["flags"]) if flags & 1] == [9]


def test_no_device_memory_is_held(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("memory_peak.py")
    seen = watch("memory_peak.py")

    assert seen.truth["allocated"] == pytest.approx(bare.truth["allocated"], abs=1 << 20)
    assert seen.truth["reserved"] == pytest.approx(bare.truth["reserved"], abs=4 << 20)
