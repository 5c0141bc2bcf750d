"""Checkpoints that another process writes, in a trial: where they go, and that nobody has to do its work again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.records.trial import Trial
from flatout.words import english
from tests.integration.experiment.containing import SCRIPTS, tree

_PROFILE = {"checkpoint.async": True}


def made(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trial, list[str]]:
    monkeypatch.chdir(work)
    trial = TrialRunner(tmp_path / "trials")(Request((str(SCRIPTS / "saves_often.py"),), "saved", _PROFILE, steps=100))
    assert trial.ending == "finished", english(trial.why)
    assert [state.state for state in trial.states] == ["applied"]
    return trial, (Path(trial.run) / "output.txt").read_text().splitlines()


@pytest.mark.parametrize("before", [(), pytest.param(("last.pt",), marks=pytest.mark.variant), ("last.pt.part",)])
def test_they_go_to_the_scratch_folder_by_one_process(
    before: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    for name in before:
        (work / "out" / name).write_bytes(b"of the user")
    as_it_was = tree(work)

    trial, said = made(work, tmp_path, monkeypatch)

    assert said[-1] == "READ 39 ['last.pt']"
    # One that fails is not used again, and what it could not do holds the training up.
    writers = [line.removeprefix("WRITERS").split() for line in said if line.startswith("WRITERS")][1:]
    assert len(writers) == 9 and {len(one) for one in writers} == {1} and len({one[0] for one in writers}) == 1
    assert tree(work) == as_it_was
    # By the names that the script has for them, and nothing is said of a program that was not contained.
    assert {Path(name).name for name in trial.written} == {"last.pt.part", "last.pt"}
