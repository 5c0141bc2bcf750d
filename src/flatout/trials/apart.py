"""A process in a session of its own, so that its workers and ranks end with it, and no terminal to ask questions at."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    argv: Sequence[str], environ: Mapping[str, str], output: Path, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    with output.open("wb") as log:
        return subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
        )


def end(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
    """The whole session: asked first if it is given time for that, then made to."""
    if grace_s and process.poll() is None:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            pass
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass
