"""Running a measured child process and reading the JSON it left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = ROOT / "benchmarks" / "children"


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that ended well. Times are of the monotonic clock, which its own perf_counter shares."""

    started_s: float
    ended_s: float
    output: str


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 600.0) -> Ended:
    """Run to the end; a failure shows the child's own last words."""
    merged = {**environment(), **(env or {})}
    started_s = time.perf_counter()
    done = subprocess.run(
        command, cwd=cwd, env=merged, timeout=timeout_s, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    ended_s = time.perf_counter()
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-3000:]
        raise SystemExit(f"exit {done.returncode} from: {' '.join(command)}\n{tail}")
    return Ended(started_s, ended_s, done.stdout + done.stderr)


def environment() -> dict[str, str]:
    """Ours; what is measured is this checkout, installed or not."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths}


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in `path`."""
    value = json.loads(path.read_text())
    assert isinstance(value, dict), path
    return value
