"""How the tests of the parent process start it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import flatout

SRC = str(Path(flatout.__file__).parents[1])
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("FLATOUT_")}
RUN = [sys.executable, "-m", "flatout", "run"]
LIMIT_S = 30.0


def run(
    *words: str | bytes, cwd: Path, temporary: Path | None = None, **more: object
) -> subprocess.CompletedProcess[bytes]:
    """`temporary`: where a run that cannot be kept elsewhere goes, and stays."""
    environ = ENVIRON if temporary is None else {**ENVIRON, "TMPDIR": str(temporary)}
    return subprocess.run([*RUN, *words], cwd=cwd, env=environ, capture_output=True, timeout=200, **more)  # type: ignore[call-overload,no-any-return]


def start(*words: str, cwd: Path, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*RUN, *words], cwd=cwd, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )  # type: ignore[call-overload,no-any-return]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
