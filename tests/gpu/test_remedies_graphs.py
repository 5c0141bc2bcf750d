"""A model replayed as CUDA graphs: the same training, whatever the script does around it, and quicker or undone."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.common.corpus import CORPUS
from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.gpu

_ASKED = ("--remedy", "graphs.model=true")
# What a training comes to; the same kernels run, so rounding is all that may differ, and grows from step to step.
_CLOSE = {"losses": 1e-3, "evaluated": 1e-3, "kept": 1e-2, "statistics": 1e-3}


def _assert_same_training(ours: dict[str, Any], bare: dict[str, Any]) -> None:
    for name, close in _CLOSE.items():
        assert ours[name] == pytest.approx(bare[name], rel=close, abs=1e-3), name
    assert ours["names"] == bare["names"]
    # Neither more nor fewer random numbers were drawn.
    assert ours["random"] == bare["random"]


@pytest.mark.parametrize(
    "words",
    [(), ("accumulates",), ("zeroes", "accumulates"), ("inputs",), ("keeps",), ("changes",), ("twice",)],
    ids=lambda words: "-".join(words) or "plain",
)
def test_the_training_is_the_same(run_bare: Run, watch: Watch, words: tuple[str, ...]) -> None:
    bare = run_bare("graphed.py", *words).truth

    seen = watch("graphed.py", *words, options=_ASKED)

    assert seen.returncode == 0, seen.stderr
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied" or "ms replayed" in state["why"], state
    assert state["live"]["recorded_at_step"] >= 30, state
    assert state["live"]["first_replay"] in ("identical", "close")
    _assert_same_training(seen.truth, bare)


def test_it_is_quicker_and_says_by_how_much(run_bare: Run, watch: Watch) -> None:
    seen = watch("graphed.py", options=_ASKED)

    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state
    assert state["live"]["step_ms_after"] < 0.9 * state["live"]["step_ms_before"], state
    assert state["live"]["compared_replays"] == 20


def test_with_autocast_around_the_call(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("graphed.py", "autocast").truth

    seen = watch("graphed.py", "autocast", options=_ASKED)

    (state,) = seen.json["remedies"]
    assert state["live"]["recorded_at_step"] >= 30, state
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=0.05, abs=0.02)
    assert seen.truth["random"] == bare["random"]


def test_with_bf16_from_outside_as_well(watch: Watch) -> None:
    in_bf16 = ("--remedy", "precision.bf16=true")
    rounded = watch("graphed.py", options=in_bf16).truth

    seen = watch("graphed.py", options=(*_ASKED, *in_bf16))

    states = {one["id"]: one for one in seen.json["remedies"]}
    assert states["precision.bf16"]["state"] == "applied", states
    assert states["graphs.model"]["live"]["recorded_at_step"] >= 30, states
    assert seen.truth["losses"] == pytest.approx(rounded["losses"], rel=0.05, abs=0.02)


def test_a_gradient_that_is_differentiated_itself(run_bare: Run, watch: Watch) -> None:
    bare = run_bare("graphed.py", "penalty").truth

    seen = watch("graphed.py", "penalty", options=_ASKED)

    assert seen.returncode == 0, seen.stderr
    assert seen.truth["losses"] == pytest.approx(bare["losses"], rel=1e-2, abs=1e-2)
    assert seen.truth["random"] == bare["random"]


@pytest.mark.parametrize(
    ("word", "whys"),
    [
        ("waits", ("the host waits for the device",)),
        # Where torch tells of this wait too, it is refused before it can break anything.
        ("breaks", ("could not be recorded", "the host waits for the device")),
        ("freezes", ("frozen",)),
    ],
)
def test_what_cannot_be_replayed_is_left_unharmed(
    run_bare: Run, watch: Watch, word: str, whys: tuple[str, ...]
) -> None:
    bare = run_bare("graphed.py", word, "own").truth

    seen = watch("graphed.py", word, "own", options=_ASKED)

    assert seen.returncode == 0, seen.stderr
    (told,) = seen.json["remedies"]
    assert told["state"] in ("refused", "reverted") and any(why in told["why"] for why in whys), told
    _assert_same_training(seen.truth, bare)
    assert seen.truth["own"] == bare["own"]


def test_the_small_model_of_the_corpus_is_quicker(watch: Watch) -> None:
    seen = watch(CORPUS / "ho401_small_model.py", "--steps", "600", options=_ASKED)

    assert seen.returncode == 0, seen.stderr
    (state,) = seen.json["remedies"]
    assert state["state"] == "applied", state
    assert state["live"]["step_ms_after"] < 0.8 * state["live"]["step_ms_before"], state
