"""Calls of modules that a step could do without are found, and those that only look like it are not."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from tests.integration.watching import SCRIPTS, Run, Watch, Watched

OFTEN = json.dumps({"window_budget": 100.0, "window_often": True})
# By training: what is said of which module.
EXPECTED = {
    "vain_generator_for_each_loss": {"repeat"},
    "vain_chain": {"repeat"},
    "vain_metric_with_dropout": {"repeat"},
    "vain_metric_before_the_step": {"repeat"},
    "vain_fake_for_either_player": {"repeat"},
    "vain_teacher_with_gradients": {"unheld"},
    "vain_average_with_gradients": {"unheld"},
    "vain_perceptual_loss": {"unheld"},
    "vain_passes": {"again"},
    "vain_passes_of_two_players": {"dropped"},
    "vain_fake_with_gradients": {"dropped"},
    "vain_fake_after_the_generator": {"dropped"},
    "vain_fake_in_parts": {"dropped"},
    "vain_next_action": {"dropped"},
    "vain_prefix_rnn": {"growing"},
    "vain_rollout_with_cat": {"growing"},
    "vain_function": {"repeat"},
}


def windows_of(seen: Watched) -> list[dict[str, Any]]:
    return [value for recording in seen.trainings for value in recording.values("window")]


def say_by_training(seen: Watched) -> dict[str, set[str]]:
    """What is said of each."""
    said: dict[str, set[str]] = defaultdict(set)
    for window in windows_of(seen):
        for call in window["calls"]:
            said[call["at"][2]].add(call["kind"])
        for again in window["again"]:
            said[again["at"][2]].add("again")
            assert (again["passes"], again["nodes"] > 6) == (2, True)
        for growing in window["growing"]:
            said[growing["at"][2]].add("growing")
    return dict(said)


def test_calls_in_vain_are_told_from_others(watch: Watch, run_bare: Run) -> None:
    bare = run_bare("calls.py")
    seen = watch("calls.py", FLATOUT_SETTINGS=OFTEN)

    assert seen.returncode == bare.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert "stopped watching" not in seen.stderr
    assert say_by_training(seen) == EXPECTED
    windows = windows_of(seen)
    check_growing(windows)
    # Every training was looked at, but for those in which windows are left out.
    looked_at = {line[2] for window in windows for line in window["lines"]}
    trainings = set(re.findall(r"^def ((?:vain|fine)_\w+)", (SCRIPTS / "calls.py").read_text(), re.MULTILINE))
    assert trainings <= looked_at | {"fine_penalty"}
    chain = [call for window in windows for call in window["calls"] if call["at"][2] == "vain_chain"]
    assert {call["nodes"] > 0 for call in chain} == {True}, "their backward is in vain as well"
    through = {call["at"][2] for window in windows for call in window["calls"] if call["flows_through"]}
    assert through == {"vain_perceptual_loss"}
    dropped = [call for window in windows for call in window["calls"] if call["kind"] == "dropped"]
    lines = (SCRIPTS / "calls.py").read_text().splitlines()
    assert {call["module"] for call in dropped if "generator(" in lines[call["at"][1] - 1]} == {
        "Sequential",
        "Generator",
    }
    assert all(call["nodes"] and re.search(r"generator\(|following", lines[call["at"][1] - 1]) for call in dropped)


def check_growing(windows: list[dict[str, Any]]) -> None:
    """What is told of sequences that are computed from their start."""
    found = {growing["at"][2]: growing for window in windows for growing in window["growing"]}
    lengths = ("module", "sequences", "calls", "first_length", "last_length", "dimension", "computed", "needed")
    prefix, rollout = found["vain_prefix_rnn"], found["vain_rollout_with_cat"]
    assert [prefix[name] for name in lengths] == ["Reader", 1, 12, 1, 12, 1, 78, 12]
    assert [rollout[name] for name in lengths] == ["Reader", 2, 18, 3, 11, 1, 126, 22]
    assert (prefix["is_known"], rollout["is_known"]) == (True, False)
    for name, growing in found.items():
        assert growing["nodes"] > growing["calls"]
        assert growing["fixed_ms"] >= 0
        # Of a window that others disturbed all may have been lost time.
        windows_of_it = [each for window in windows for each in window["growing"] if each["at"][2] == name]
        assert min(sum(each[f"{phase}_ms"] for each in windows_of_it) for phase in ("forward", "backward")) > 0
