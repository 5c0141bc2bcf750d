"""Trainers of the frameworks, without any callback of ours."""

from __future__ import annotations

from tests.integration.watching import Run, Watch, assert_phases_tile


def test_lightning_trainer(watch: Watch) -> None:
    seen = watch("lightning_fit.py")

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"] == 24
    assert seen.samples == seen.truth["samples"]
    assert seen.steps["phase_s"][:, 6].sum() > 0, "validation is evaluation"
    assert_phases_tile(seen.steps)


def test_hugging_face_trainer(watch: Watch) -> None:
    seen = watch("hf_trainer.py")

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"] == 24
    assert seen.samples == seen.truth["samples"]
    assert_phases_tile(seen.steps)


def test_accelerate_launch(watch: Watch, run_bare: Run) -> None:
    seen = watch("accelerate", "launch", "--cpu", "--num_processes", "1", "accelerated.py")

    assert seen.returncode == 0, seen.stderr
    assert seen.step_count == seen.truth["steps"]
    assert seen.samples == seen.truth["samples"]
