"""torch.compile stays what it was: graph breaks, recompiles and numbers equal a bare run's."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch


# What is patched only where there is CUDA must not show here either.
@pytest.mark.parametrize("settings", [pytest.param("{}", marks=pytest.mark.variant), '{"device_patches": true}'])
@pytest.mark.parametrize("backend", [pytest.param("eager", marks=pytest.mark.variant), "aot_eager"])
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
