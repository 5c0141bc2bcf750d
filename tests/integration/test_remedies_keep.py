"""What is checkpointed is kept from outside: the same training to the last bit, with fewer runs of the blocks."""

from __future__ import annotations

import pytest

from tests.integration.watching import Run, Watch

_ASKED = ("--remedy", "memory.keep=true")
_STEPS, _BLOCKS = 12, 8


def test_parts_are_run_once_and_the_training_is_the_same(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("recomputed.py").truth

    seen = watch("recomputed.py", options=_ASKED)

    assert seen.returncode == 0, seen.stderr
    for name in ("losses", "weights", "buffers", "random"):
        assert seen.truth[name] == bare[name], name
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied" and "8 of 8 calls a step" in state["live"]["kept"], state
    assert bare["runs"] == 2 * _STEPS * _BLOCKS
    # Two steps are looked on, and in the third only one of eight is kept.
    assert seen.truth["runs"] == 2 * _BLOCKS * 2 + (2 * _BLOCKS - 1) + (_STEPS - 3) * _BLOCKS


def test_calls_and_their_time_are_recorded(watch: Watch) -> None:
    seen = watch("recomputed.py")

    told = seen.json["live"]["torch"]["recomputed"]
    assert told["calls"] == pytest.approx(_BLOCKS * told["steps"], rel=0.3) and told["seconds"] > 0.0
