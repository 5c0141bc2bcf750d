"""The window over a few steps: backward is linked to the lines that made it, and the training stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flatout.diagnose.ranks import training_ranks
from flatout.diagnose.windows import op_costs
from flatout.records.evidence import OpCost
from flatout.records.report import PhaseShare
from tests.integration.watching import Run, Watch, Watched, line_of

OFTEN = json.dumps({"window_budget": 1.0, "window_often": True})


def windows(seen: Watched) -> list[dict[str, Any]]:
    return [value for recording in seen.trainings for value in recording.values("window")]


def test_trainings_of_all_kinds_are_the_same_to_the_bit(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("window.py")
    seen = watch("window.py", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth, "something was left behind, or the random state moved"
    assert "stopped watching" not in seen.stderr
    functions = {line[2] for window in windows(seen) for line in window["lines"] if line[7]}
    assert functions >= {
        "plain",
        "autocast",
        "custom_function",
        "gan",
        "penalty",
        "accumulated",
        "two_losses",
        "without_loader",
    }
    assert "again" in functions, "the closure"


def test_over_lines_only_they_are_the_same_too(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("window.py")
    seen = watch("window.py", FLATOUT_SETTINGS=json.dumps({**json.loads(OFTEN), "window_lines": True}))

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth
    assert {tuple(window["without"]) for window in windows(seen)} == {("calls", "nodes")}
    assert {"plain", "gan", "accumulated"} <= {
        line[2] for window in windows(seen) for line in window["lines"] if line[7]
    }


def costs(seen: Watched) -> tuple[OpCost, ...]:
    ranks = training_ranks(seen.stored)
    phases = {name: PhaseShare(phase["share"], phase["ms"]) for name, phase in seen.json["phases"].items()}
    return op_costs(ranks, phases)


@pytest.mark.durations
def test_backward_is_linked_to_the_lines_that_made_it(watch: Watch) -> None:
    seen = watch("window_known.py", FLATOUT_SETTINGS=json.dumps({"window_budget": 0.1}))

    assert seen.returncode == 0, seen.stderr
    everywhere = costs(seen)
    found = {cost.location.line: cost for cost in everywhere if cost.in_module}
    marks = ("the large one", "each sample", "its end", "any of them")
    large, each, end, slept = (found[line_of("window_known.py", f"# {mark}")] for mark in marks)
    assert large.backward_ms and each.backward_ms
    # 4 ms, and 8 times 1.5. Where others use the processors too a sleep is longer, and the more so the shorter it is.
    assert 2.7 < each.backward_ms / large.backward_ms < 4.5
    # Forward times are of the innermost line of the user's own.
    assert slept.forward_ms > sum(cost.forward_ms for cost in found.values()) / 2
    assert (large.calls, each.calls, end.calls) == (2, 8, 8), "the large one calls a module as well"
    assert (each.backward_ops, end.backward_ops) == (8, 8)
    assert sum(cost.backward_ms or 0.0 for cost in everywhere) == pytest.approx(
        seen.json["phases"]["backward"]["ms"], rel=0.02
    )
    assert sum(cost.forward_ms for cost in everywhere) <= 1.001 * seen.json["phases"]["forward"]["ms"]


def test_a_window_can_be_switched_off(watch: Watch) -> None:
    seen = watch("window_known.py", options=("--no-window",))

    assert not windows(seen)
    assert not [value for recording in seen.trainings for value in recording.values("window_missing")]


@pytest.mark.variant
def test_a_compiled_script_is_left_alone(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("compiled.py", "eager")
    seen = watch("compiled.py", "eager", FLATOUT_SETTINGS=OFTEN)

    assert seen.told("COUNTERS") == bare.told("COUNTERS")
    assert seen.losses == bare.losses
    assert not windows(seen)
    assert [recording.values("window_missing")[0]["why"] for recording in seen.trainings] == ["compiled"]
