"""The window over a few steps, on a GPU: losses, random state and peak memory stay the same to the bit."""

from __future__ import annotations

import json

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu
OFTEN = json.dumps({"window_budget": 1.0, "window_often": True})


def test_trainings_of_all_kinds_are_the_same_to_the_bit(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("window.py")
    seen = watch("window.py", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth, "something was left behind, the random state moved, or memory was taken"
    windows = [value for recording in seen.trainings for value in recording.values("window")]
    functions = {line[2] for window in windows for line in window["lines"] if line[7]}
    assert functions >= {"plain", "autocast", "custom_function", "gan", "accumulated", "two_losses", "without_loader"}
    # Autograd has a thread of its own here; its hooks come all the same.
    assert all(window["backward_ms"] > 0 for window in windows)
    assert "stopped watching" not in seen.stderr


def test_nothing_of_it_synchronises(watch: Watch) -> None:
    seen = watch("strict.py", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]
