"""What is checkpointed is kept from outside: the same training to the last bit, with fewer runs of the blocks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.watching import Run, Watch, Watched

_ASKED = ("--remedy", "memory.keep=true")
_STEPS, _BLOCKS = 12, 8


def _assert_same_training(seen: dict[str, Any], bare: dict[str, Any]) -> None:
    for name in ("losses", "weights", "buffers", "random"):
        assert seen[name] == bare[name], name


def _state(seen: Watched) -> dict[str, Any]:
    assert seen.returncode == 0, seen.stderr
    (state,) = seen.json["remedies"]
    return dict(state)


@pytest.mark.parametrize("word", ["plain", pytest.param("reentrant with gradients", marks=pytest.mark.variant)])
def test_parts_are_run_once_and_the_training_is_the_same(run_bare: Run, watch: Watch, word: str) -> None:
    bare = run_bare("recomputed.py", word).truth

    seen = watch("recomputed.py", word, options=_ASKED)

    state = _state(seen)
    _assert_same_training(seen.truth, bare)
    assert state["state"] == "applied" and "8 of 8 calls a step" in state["live"]["kept"], state
    assert bare["runs"] == 2 * _STEPS * _BLOCKS
    # Two steps are looked on, and in the third only one of eight is kept.
    assert seen.truth["runs"] == 2 * _BLOCKS * 2 + (2 * _BLOCKS - 1) + (_STEPS - 3) * _BLOCKS


@pytest.mark.parametrize(
    ("word", "why"),
    [
        # Blocks get no gradient in reentrant mode if their input has none: they must not get one from us.
        ("reentrant", "no part could be kept"),
        ("norm", "changes a buffer"),
    ],
)
def test_what_would_be_another_training_is_left(run_bare: Run, watch: Watch, word: str, why: str) -> None:
    bare = run_bare("recomputed.py", word).truth

    seen = watch("recomputed.py", word, options=_ASKED)

    told = _state(seen)
    _assert_same_training(seen.truth, bare)
    assert told["state"] == "refused" and why in told["why"], told


def test_a_script_without_any_is_told(watch: Watch) -> None:
    told = _state(watch("loader_order.py", options=_ASKED))

    assert told["state"] == "refused" and "was not called" in told["why"]


def test_calls_and_their_time_are_recorded(watch: Watch) -> None:
    seen = watch("recomputed.py")

    told = seen.json["live"]["torch"]["recomputed"]
    assert told["calls"] == pytest.approx(_BLOCKS * told["steps"], rel=0.3) and told["seconds"] > 0.0
