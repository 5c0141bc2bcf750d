"""`flatout run --stages`: what stages take, and that the training is bit for bit what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.watching import Run, Watch

pytestmark = pytest.mark.durations

STAGES = ("--stages",)


def test_training_is_the_same_to_the_bit(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("stages.py")
    seen = watch("stages.py", options=STAGES)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.truth == bare.truth, "the random state moved, or a hook was left behind"
    assert seen.step_count == bare.truth["steps"]
    stages = {stage["name"]: stage for stage in seen.json["stages"]}
    assert {"stem", "pair", "named", "head", "frozen"} <= set(stages)
    assert all(stage["samples"] >= 4 for stage in stages.values())
    assert all(stages[name]["backward_ms"] > 0 for name in ("stem", "pair", "named", "head"))
    assert stages["frozen"]["backward_ms"] == 0
    shared = [stage for name, stage in stages.items() if name.startswith("shared")]
    assert shared and all(stage["calls_per_step"] == 2 for stage in shared)
    assert not [name for name in stages if name.startswith("old_checkpoint")]
    assert "old_checkpoint left out (checkpointed" in seen.notices


@pytest.mark.timing
def test_times_are_those_that_were_planted(watch: Watch) -> None:
    seen = watch("known_stages.py", options=STAGES)

    stages = {stage["name"]: stage for stage in seen.json["stages"]}
    assert list(stages) == list(seen.truth["stages"])
    for name, (forward_ms, backward_ms) in seen.truth["stages"].items():
        assert stages[name]["forward_ms"] == pytest.approx(forward_ms, rel=0.15, abs=1.0), name
        assert stages[name]["backward_ms"] == pytest.approx(backward_ms, rel=0.15, abs=1.0), name
    # 8 of 38.5 ms are of no stage.
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(30.5 / 38.5, abs=0.1)
    assert "Stages of your model" in seen.stderr


@pytest.mark.variant
def test_graph_breaks_and_recompiles_equal_bare(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("compiled.py", "eager")
    seen = watch("compiled.py", "eager", options=STAGES)

    assert seen.told("COUNTERS") == bare.told("COUNTERS")
    assert seen.losses == bare.losses
    assert seen.json["stages"] is None


COMPILED = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
compiled = torch.compile(model, backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""


def test_what_is_compiled_is_left_alone_and_said_so(watch: Watch, script: Callable[[str], Path]) -> None:
    seen = watch(script(COMPILED), options=STAGES)

    assert seen.returncode == 0 and seen.json["stages"] is None
    assert "stages not measured: torch.compile is used" in seen.notices


@pytest.mark.variant
@pytest.mark.parametrize("script", ["gan.py", "lbfgs.py", "rl.py"])
def test_other_loops_stay_as_they_are(watch: Watch, run_bare: Run, script: str) -> None:
    bare = run_bare(script)
    seen = watch(script, options=STAGES)

    assert seen.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.step_count == bare.truth["steps"]
    assert "stages not measured" not in seen.notices


def test_they_are_not_there_unless_asked_for(watch_once: Watch) -> None:
    assert watch_once("epoch_loop.py").json["stages"] is None


@pytest.mark.variant
def test_the_environment_asks_too(watch: Watch) -> None:
    seen = watch("known_stages.py", FLATOUT_STAGES="yes")

    assert [stage["name"] for stage in seen.json["stages"]] == ["first", "twice", "last"]
