"""torch.compile stays what it was: graph breaks, recompiles and numbers equal a bare run's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.watching import Run, Watch


# What is patched only where there is CUDA must not show here either.
@pytest.mark.parametrize("settings", [pytest.param("{}", marks=pytest.mark.variant), '{"device_patches": true}'])
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.variant)])
def test_graph_breaks_and_recompiles_equal_bare(watch: Watch, run_bare: Run, backend: str, settings: str) -> None:
    bare = run_bare("compiled.py", backend)
    seen = watch("compiled.py", backend, FLATOUT_SETTINGS=settings)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.told("COUNTERS") == bare.told("COUNTERS")
    assert seen.losses == bare.losses


def test_steps_of_a_compiled_optimizer_are_found(watch: Watch) -> None:
    seen = watch("compiled.py", "eager")

    # Gradient accumulation looks the same for the first few: they are not counted.
    assert 0 < seen.step_count <= 14
    assert seen.samples == 2 * 52


@pytest.mark.timing
@pytest.mark.parametrize("backend", ["sleepy", pytest.param("inductor", marks=pytest.mark.variant)])
def test_what_is_compiled_is_warm_up_wherever_it_comes(watch: Watch, backend: str, tmp_path: Path) -> None:
    seen = watch("settles.py", backend, "cpu", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))

    assert seen.returncode == 0, seen.stderr
    (recording,) = seen.trainings
    # The forward pass of the very first step comes before anything can be timed.
    assert [told["index"] for told in recording.values("compile")][-1] == 150
    warmup = seen.json["warmup"]
    # A machine that is slower for the first steps makes them warm-up as well.
    assert warmup["steps"] <= 75 and warmup["causes"][0] == "compile"
    assert 1 / seen.json["throughput"]["steps_per_s"] == pytest.approx(seen.truth["step_s"], rel=0.1)
    assert [finding["code"] for finding in seen.json["findings"]] == []
