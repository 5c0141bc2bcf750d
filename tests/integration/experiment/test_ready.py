"""Processes that are started ahead of their trials: as good as others, never in the way, and gone at the end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from flatout.attach.trial import gate
from flatout.experiment import process as ready
from flatout.experiment.process import PrestartedPool
from flatout.experiment.request import Request
from flatout.experiment.runner import TrialRunner
from flatout.records.trial import Trial

_SCRIPTS = Path(__file__).parents[1] / "scripts"
_AT_ONCE = 2
Try = Callable[..., Trial]


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[PrestartedPool]:
    with PrestartedPool(tmp_path / "search" / "ready", _AT_ONCE) as opened:
        yield opened


@pytest.fixture
def attempt(tmp_path: Path, ahead: PrestartedPool, monkeypatch: pytest.MonkeyPatch) -> Try:
    monkeypatch.chdir(tmp_path)

    def made(mode: str, repeat: int = 0, script: str = "before_torch.py", **asked: object) -> Trial:
        request = Request((str(_SCRIPTS / script), mode, "note.txt"), "as it is", repeat=repeat, **asked)  # type: ignore[arg-type]
        return TrialRunner(tmp_path / "search", ready=ahead)(request)

    return made


def _said(trial: Trial) -> list[str]:
    """What the script printed: its process, when it began, a variable that it set, and its gate."""
    line = next(line for line in _output(trial) if line.startswith("TRAINS"))
    return line.split(maxsplit=3)[1:]


def _output(trial: Trial) -> list[str]:
    return (Path(trial.run) / "output.txt").read_text().splitlines()


def _loaders(trial: Trial) -> set[str]:
    """The processes that loaded samples."""
    return {line for line in _output(trial) if line.startswith("LOADS ")}


def test_the_gate_and_whoever_starts_it_mean_the_same() -> None:
    assert (gate.VARIABLE, gate.HERE) == (ready.GATE, ready.HERE)


def test_a_trial_in_such_a_process_is_a_trial_as_any_other(attempt: Try, tmp_path: Path) -> None:
    trials = [attempt("plain", repeat, steps=20, warm_up=5) for repeat in range(3)]

    assert {trial.ending for trial in trials} == {"stopped"}
    assert {(trial.losses, trial.weights, len(trial.step_s)) for trial in trials} == {
        (trials[0].losses, trials[0].weights, 15)
    }
    pids, began_s, said = zip(*map(_said, trials), strict=True)
    assert len(set(pids)) == 3 and set(said) == {"before torch None"}
    # What it wrote before its trial was known is contained and told like all else.
    assert not (tmp_path / "note.txt").exists()
    assert {trial.written for trial in trials} == {(str(tmp_path / "note.txt"),)}
    # The first shows how the script is; from then on two are started at once.
    apart_s = [float(later) - float(sooner) for sooner, later in pairwise(began_s)]
    assert max(apart_s[1::2]) < 0.5 < min(apart_s[::2])


@pytest.mark.variant
@pytest.mark.parametrize("mode", ["plain", "imports"])
def test_the_compiler_is_imported_ahead_where_the_script_imports_it(attempt: Try, mode: str) -> None:
    trials = [attempt(mode, repeat, steps=20, warm_up=5) for repeat in range(2)]

    told = [next(line for line in _output(trial) if line.startswith("COMPILER")) for trial in trials]
    assert told == ["COMPILER False", f"COMPILER {mode == 'imports'}"]


def test_remedies_and_the_place_of_the_recording_reach_it_at_its_gate(attempt: Try) -> None:
    first = attempt("tells", script="tried.py", steps=20, warm_up=5)
    fed = attempt("tells", script="tried.py", steps=20, warm_up=5, remedies={"loader.workers": 2})
    plain = attempt("tells", 1, script="tried.py", steps=20, warm_up=5)

    assert [state.state for state in fed.states] == ["applied"] and not plain.states
    assert first.losses == fed.losses == plain.losses
    # Whoever loads says so: without workers the training process itself.
    assert [len(_loaders(trial)) for trial in (first, fed, plain)] == [1, 2, 1]


@pytest.mark.parametrize(
    "mode",
    ["waits", *(pytest.param(mode, marks=pytest.mark.variant) for mode in ("fails", "thread", "child")), "compiler"],
)
def test_a_script_that_cannot_wait_there_is_started_for_each_trial(
    attempt: Try, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two want what only one can have, one has a thread that works on, one trains in a child.

    And one sets what the compiler reads when it is imported, which would be too late.
    """
    monkeypatch.setattr(ready, "_MORE_S", 1.0)
    trials = [attempt(mode, repeat, steps=20, warm_up=5) for repeat in range(3)]

    assert [trial.ending for trial in trials] == ["stopped"] * 3
    assert len({trial.weights for trial in trials}) == 1
    began_s = sorted(float(_said(trial)[1]) for trial in trials)
    assert not _left() and min(later - sooner for sooner, later in pairwise(began_s)) > 1.0


def test_one_that_died_at_its_gate_is_not_handed_out_and_nothing_is_left_of_others(
    attempt: Try, ahead: PrestartedPool, tmp_path: Path
) -> None:
    for repeat in range(2):
        attempt("plain", repeat, steps=20, warm_up=5)
    (waiting,) = _left()
    waiting.kill()
    waiting.wait()

    assert attempt("plain", 3, steps=20, warm_up=5).ending == "stopped"
    assert len(_left()) == _AT_ONCE - 1

    ahead.__exit__(None, None, None)

    assert not _left() and not (tmp_path / "search" / "ready").exists()


def test_they_leave_when_whoever_started_them_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from flatout.experiment.runner import TrialRunner
from flatout.experiment.process import PrestartedPool
from flatout.experiment.request import Request
maker = TrialRunner(Path("search"), ready=PrestartedPool(Path("search/ready"), 2))
for repeat in range(2):
    maker(Request(({str(_SCRIPTS / "before_torch.py")!r}, "plain", "note.txt"), "as it is", repeat=repeat, steps=20))
print("waiting", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == b"waiting\n"
        waiting = psutil.Process(starter.pid).children()
        assert len(waiting) == 1
        starter.kill()

    assert psutil.wait_procs(waiting, timeout=200)[1] == []


def _left() -> list[psutil.Process]:
    time.sleep(0.1)
    return [one for one in psutil.Process().children() if "before_torch.py" in " ".join(one.cmdline())]
