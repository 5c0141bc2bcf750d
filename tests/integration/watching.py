"""What the tests look at: a script's own account of itself, and flatout's."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.store.recording import Recording
from flatout.store.run import StoredRun

SCRIPTS = Path(__file__).parent / "scripts"
GPU_SCRIPTS = Path(__file__).parents[1] / "gpu" / "scripts"
LIMIT_S = 120


@dataclass(frozen=True)
class Ran:
    """What a child process left behind."""

    stdout: str
    stderr: str
    returncode: int

    def told(self, word: str) -> list[Any]:
        """The JSON values of the lines that begin with `word`."""
        return [json.loads(line[len(word) + 1 :]) for line in self.stdout.splitlines() if line.startswith(word + " ")]

    @property
    def truth(self) -> dict[str, Any]:
        (truth,) = self.told("TRUTH")
        assert isinstance(truth, dict)
        return truth

    @property
    def losses(self) -> list[str]:
        return [line for line in self.stdout.splitlines() if line.startswith(("loss ", "LOSSES "))]

    @property
    def shell_code(self) -> int:
        """The exit code as a shell shows it, so that death by a signal compares."""
        return 128 - self.returncode if self.returncode < 0 else self.returncode


@dataclass(frozen=True)
class Watched(Ran):
    """A run under flatout: its report and its stored records as well."""

    json: dict[str, Any]
    run_dir: Path

    @property
    def stored(self) -> StoredRun:
        return StoredRun(self.run_dir)

    @property
    def trainings(self) -> list[Recording]:
        """The recordings of processes that trained, by rank."""
        found = [r for r in self.stored.recordings if r.count("step")]
        return sorted(found, key=lambda r: (r.facts.get("rank") or 0, r.facts["start_ns"]))

    @property
    def steps(self) -> np.ndarray[Any, Any]:
        """The step records of the only process that trained."""
        (recording,) = self.trainings
        return recording.records["step"]

    @property
    def step_count(self) -> int:
        return int(self.steps["steps"].sum())

    @property
    def samples(self) -> int:
        return int(self.steps["samples"].sum())

    def share(self, phase: str) -> float:
        return float(self.json["phases"][phase]["share"])

    @property
    def notices(self) -> str:
        """Whatever was said to the user: in the report and on the terminal."""
        return "\n".join([*self.json.get("notices", []), self.stderr])


Run = Callable[..., Ran]
Watch = Callable[..., Watched]


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Ours, with the interpreter's own scripts (torchrun, accelerate) on PATH."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    plain = {k: v for k, v in os.environ.items() if not k.startswith("FLATOUT_")}
    return {**plain, "PATH": path, "NO_COLOR": "1", "COLUMNS": "80", **extra}


def words(args: Sequence[str | Path]) -> list[str]:
    """Names of our scripts become their paths."""
    return [str(path_of(str(a)) or a) for a in args]


def path_of(script: str) -> Path | None:
    return next((folder / script for folder in (SCRIPTS, GPU_SCRIPTS) if (folder / script).is_file()), None)


def line_of(script: str, mark: str) -> int:
    """The number of the line of a script that carries this mark."""
    path = path_of(script)
    assert path is not None, script
    lines = path.read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
    return found


def assert_phases_tile(steps: np.ndarray[Any, Any]) -> None:
    """The phases of every step add up to its wall time, and steps follow each other without a gap."""
    walls_s = steps["wall_ns"] * 1e-9
    sums_s = steps["phase_s"].astype(float).sum(axis=1)
    assert (steps["phase_s"] >= 0).all()
    np.testing.assert_allclose(sums_s, walls_s, rtol=0.01, atol=2e-6)
    gaps_ns = steps["start_ns"][1:].astype(np.int64) - (steps["start_ns"] + steps["wall_ns"])[:-1].astype(np.int64)
    assert (np.abs(gaps_ns) <= 1000).all(), "there is time between two steps that belongs to neither"
