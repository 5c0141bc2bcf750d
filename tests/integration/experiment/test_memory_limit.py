"""A container's memory limit: a trial that the kernel kills for it has run out of memory, and not crashed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[1] / "scripts" / "eats.py"
_LIMIT = 1_500 << 20
# Where groups can be made, by who may: the file for the limit, by version.
_ROOTS = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}
_TRY = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from flatout.experiment.runner import TrialRunner
from flatout.experiment import process
from flatout.experiment.request import Request
from flatout.words import english
# The kernel is to be sooner than we would.
process._LEAST_FREE = float(sys.argv[5])
request = Request((sys.argv[2], sys.argv[3]), "as it is", steps=100, warm_up=2, limit_s=60, allow_writes=True)
trial = TrialRunner(Path(sys.argv[4]))(request)
print(json.dumps([trial.ending, english(trial.why)]))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of processes with a limit of its own."""
    for root, limit in _ROOTS.items():
        place = Path(root) / f"flatout-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            (place / limit).write_text(str(_LIMIT))
        except OSError:
            place.rmdir()
            continue
        yield place
        place.rmdir()
        return
    pytest.skip("no memory limit can be set here")


def _tried(group: Path, folder: Path, who: str, least_free: float) -> tuple[str, str]:
    command = [sys.executable, "-c", _TRY, str(group), str(_SCRIPT), who, str(folder), str(least_free)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    ending, why = json.loads(done.stdout.splitlines()[-1])
    return ending, why


@pytest.mark.parametrize("who", ["main", "worker"])
def test_it_is_named(group: Path, tmp_path: Path, who: str) -> None:
    ending, why = _tried(group, tmp_path, who, least_free=-1.0)

    assert ending == "out of memory"
    victim = {"main": "the training", "worker": "a loader's worker"}[who]
    assert why == f"the kernel killed {victim} for want of memory, 1.5 GiB are all there may be here"


def test_before_that_the_trial_is_cut_off(group: Path, tmp_path: Path) -> None:
    ending, why = _tried(group, tmp_path, "main", least_free=0.3)

    assert ending == "out of memory"
    assert why.startswith("cut off after") and why.endswith("when hardly any memory was left")


@pytest.mark.parametrize("who", ["main", "worker"])
def test_a_run_that_ends_so_has_it_among_its_findings(group: Path, tmp_path: Path, who: str) -> None:
    """Nothing of it lives on to be sampled: the count of the limit itself is read once more."""
    report = tmp_path / "run.json"
    run = [sys.executable, "-m", "flatout", "run", "-q", "--json", str(report), "--out", str(tmp_path / "run")]
    enter = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid())); "
    command = [*run, str(_SCRIPT), who]
    subprocess.run(
        [sys.executable, "-c", f"{enter}os.execv({command[0]!r}, {command!r})"], capture_output=True, timeout=200
    )

    assert "ME705" in [one["code"] for one in json.loads(report.read_text())["findings"]]
