"""Turns with and without a remedy, in one process of a real script."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.experiment.turns import build_resting_arms, compare_with_and_without, count_turn_steps, resting_steps
from flatout.records.fix import Planned
from flatout.records.message import verbatim

pytestmark = pytest.mark.gpu
_SCRIPTS = Path(__file__).parent / "scripts"
_SCRIPT = _SCRIPTS / "pinned_each_step.py"


@pytest.mark.parametrize("workers", [{}, {"loader.workers": 2}])
def test_batches_are_pinned_in_some_turns_and_not_in_others(tmp_path: Path, workers: dict[str, int]) -> None:
    both = [Planned(name, True, "lossless", name, verbatim("to be tried")) for name in ("loader.pin", "transfer.async")]
    arms, settling, rounds, warm_up = build_resting_arms(both), resting_steps(both, 2), 4, 40
    steps = count_turn_steps(arms, warm_up, rounds, settling=settling)
    profile = {**workers, "loader.pin": True, "transfer.async": True}

    plain = TrialRunner(tmp_path)(Request((str(_SCRIPT),), "as it is", steps=steps, warm_up=warm_up))
    turns = TrialRunner(tmp_path)(
        Request((str(_SCRIPT),), "turns", profile, steps=steps, warm_up=warm_up, arms=arms, settling=settling)
    )

    assert turns.ending == "stopped" and turns.losses == plain.losses
    assert {state.id: state.state for state in turns.states} == dict.fromkeys(profile, "applied")
    said = [line for line in (Path(turns.run) / "output.txt").read_text().splitlines() if line in "01"]
    runs = [(pinned, len(list(same))) for pinned, same in groupby(said)]
    # Every turn without them, alone or after another, is so for all steps that are timed; and so is every one with.
    assert all(length >= 8 for _, length in runs) and len(runs) >= 2 * 3
    found = TrialRunner(tmp_path).in_turns(turns)
    assert all(len(arm.step_s) >= rounds - 1 for arm in found.values())


def test_a_model_is_replayed_in_some_turns_and_not_in_others(tmp_path: Path) -> None:
    graphs = [Planned("graphs.model", True, "numeric", "graphs", verbatim("to be tried"))]
    arms, settling, rounds, warm_up = build_resting_arms(graphs), resting_steps(graphs, 0), 4, 90
    steps = count_turn_steps(arms, warm_up, rounds, settling=settling)
    command = (str(_SCRIPTS / "graphed.py"), "long")

    plain = TrialRunner(tmp_path)(Request(command, "as it is", steps=steps, warm_up=warm_up))
    asked = {"graphs.model": True}
    turns = TrialRunner(tmp_path)(
        Request(command, "turns", asked, steps=steps, warm_up=warm_up, arms=arms, settling=settling)
    )

    (state,) = turns.states
    assert turns.ending == "stopped" and state.state == "applied", state
    assert turns.losses == pytest.approx(plain.losses, rel=1e-2, abs=1e-3)
    decision = compare_with_and_without(TrialRunner(tmp_path).in_turns(turns))
    assert decision is not None and decision.judgement == "kept", decision
