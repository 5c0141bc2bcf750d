"""Remedies for memory on a GPU: what they save, and that the training stays the same."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu


def test_checkpointing_holds_less_and_changes_no_bit(run_bare: Run, watch: Watch) -> None:
    bare, again = run_bare("deep.py").truth, run_bare("deep.py").truth
    assert bare["losses"] == again["losses"], "the script does not repeat itself, so nothing can be said"

    seen = watch("deep.py", options=("--remedy", "memory.checkpointing=true"))

    (state,) = seen.json["remedies"]
    assert state["state"] == "applied" and state["live"] == {"blocks": 16, "kinds": "Block"}, state
    assert seen.truth["losses"] == bare["losses"]
    assert seen.truth["random"] == bare["random"]
    assert seen.truth["peak"] < 0.4 * bare["peak"], (seen.truth["peak"], bare["peak"])


def test_parts_of_a_batch_hold_less_and_train_the_same(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("deep.py", "still").truth

    seen = watch("deep.py", "still", options=("--remedy", "batch.accumulate=8"))

    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state
    assert state["live"]["batches"] == " + ".join(["1024"] * 8)
    assert seen.truth["numbers"] == pytest.approx(bare["numbers"], rel=1e-3)
    assert seen.truth["peak"] < 0.5 * bare["peak"], (seen.truth["peak"], bare["peak"])
