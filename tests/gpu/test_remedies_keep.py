"""What is checkpointed is kept on a real GPU: the same to the last bit, within the memory there is."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu
_ASKED = ("--remedy", "memory.keep=true")


def test_parts_are_run_once_and_the_training_is_the_same(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("recomputed.py", "plain", "cuda").truth

    seen = watch("recomputed.py", "plain", "cuda", options=_ASKED)

    (state,) = seen.json["remedies"]
    for name in ("losses", "weights", "random"):
        assert seen.truth[name] == bare[name], name
    assert state["state"] == "applied" and "8 of 8 calls a step" in state["live"]["kept"], state
    assert seen.truth["runs"] < 0.7 * bare["runs"]


def test_no_more_is_kept_than_there_is_room_for(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("recomputed.py", "full", "cuda").truth

    seen = watch("recomputed.py", "full", "cuda", options=_ASKED)

    (state,) = seen.json["remedies"]
    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"] == bare["losses"]
    assert state["state"] == "refused" or "8 of 8" not in state["live"]["kept"], state
