"""Runs the reference workloads as a stranger would: by path, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "src" / "flatout" / "workloads"
EXPERTS = ROOT / "benchmarks" / "experts"
COUNTED = Path(__file__).with_name("counted.py")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def final(self) -> dict[str, float]:
        """The figures of its last line, `final: steps=30 loss=0.5 psnr=20.1`."""
        line = [line for line in self.out.splitlines() if line.startswith("final: ")][-1]
        return {name: float(value) for name, value in (pair.split("=") for pair in line.split()[1:])}


def start(*command: str | Path, timeout_s: float = 100, **environment: str) -> Ended:
    """Run a Python script to its end."""
    environ = {**os.environ, **environment}
    arguments = [sys.executable, *map(str, command)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s, env=environ)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def train(name: str, *arguments: str | Path) -> Ended:
    """Run a workload's training script."""
    return start(WORKLOADS / name / "train.py", *arguments)


def expert(name: str, *arguments: str | Path) -> Ended:
    """Run the expert's form of it."""
    return start(EXPERTS / name / "train.py", *arguments)


def watched(name: str, report: Path, *arguments: str | Path, script: Path | None = None) -> dict[str, Any]:
    """Run it under `flatout run` and return the report."""
    command = ["-m", "flatout", "run", "--json", report, "--out", report.parent / f"{report.stem}.run", "--"]
    ended = start(*command, script or WORKLOADS / name / "train.py", *arguments)
    assert ended.code == 0, ended.err
    loaded: dict[str, Any] = json.loads(report.read_text())
    return loaded


def counted(name: str, out: Path, *arguments: str | Path, script: Path | None = None) -> dict[str, Any]:
    """Run it while counting operations and tensor calls; see `counted.py`."""
    ended = start(COUNTED, out, script or WORKLOADS / name / "train.py", *arguments)
    assert ended.code == 0, ended.err
    loaded: dict[str, Any] = json.loads(out.read_text())
    return loaded
