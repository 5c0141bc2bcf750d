"""The operations of a step on a GPU: arithmetic as torch counts it, MFU, and a ladder that goes down."""

from __future__ import annotations

import json

import pytest

from tests.integration.watching import Watch

pytestmark = pytest.mark.gpu
AMPLE = json.dumps({"window_budget": 1.0, "operations_budget": 1.0, "operations_memory": True})


@pytest.mark.parametrize("mode", ["images", "single", "half", "by hand"])
def test_arithmetic_is_what_torch_counts(watch: Watch, mode: str) -> None:
    seen = watch("work.py", mode, FLATOUT_SETTINGS=AMPLE)

    assert seen.returncode == 0, seen.stderr
    gpu = seen.json["gpu"]
    assert sum(share["flops"] for share in gpu["work"]) == pytest.approx(seen.truth["flops"], rel=0.01)
    ladder = gpu["ladder"]
    assert ladder["tflops_per_s"] == pytest.approx(1e-9 * seen.truth["flops"] / seen.truth["step_ms"], rel=0.1)
    assert 0 < ladder["mfu"] < 1
    assert ladder["precision"] == {"images": "tf32", "half": "bfloat16"}.get(mode, "float32")
    rungs = [rung["ms"] for rung in ladder["rungs"]]
    assert len(rungs) == 5 and rungs == sorted(rungs, reverse=True) and rungs[-1] > 0


def test_kinds_that_multiply_have_kernels_and_work(watch: Watch) -> None:
    seen = watch("work.py", "half", FLATOUT_SETTINGS=AMPLE)

    gpu = seen.json["gpu"]
    work = {share["kind"] for share in gpu["work"] if share["flops"]}
    kernels = {kind["kind"] for kind in gpu["kernels"]["kinds"]}
    assert work == {"gemm", "attention"} and work <= kernels


def test_what_fusing_leaves_is_less(watch: Watch) -> None:
    seen = watch("work.py", "images", FLATOUT_SETTINGS=AMPLE)

    moving = [share for share in seen.json["gpu"]["work"] if share["kind"] in ("pointwise", "normalisation")]
    assert moving and all(share["fused_bytes"] is not None for share in moving)
    assert sum(share["fused_bytes"] for share in moving) < 0.9 * sum(share["bytes"] for share in moving)


def test_attention_by_hand_is_found(watch: Watch) -> None:
    by_hand = watch("work.py", "by hand", FLATOUT_SETTINGS=AMPLE)
    fused = watch("work.py", "half", FLATOUT_SETTINGS=AMPLE)

    (found,) = [finding for finding in by_hand.json["findings"] if finding["code"] == "CO510"]
    assert found["evidence"]["attentions_per_step"] == 6 and found["evidence"]["rows"] == 512
    assert not [finding for finding in fused.json["findings"] if finding["code"] == "CO510"]


def test_within_its_own_budget_it_costs_little(watch: Watch) -> None:
    seen = watch("work.py", "half")

    notes = [note for recording in seen.trainings for note in recording.values("operations")]
    assert seen.returncode == 0
    assert all(note["cost_ms"] <= 0.01 * seen.truth["step_ms"] * 400 + 50 for note in notes)
