"""Runs a command for so long at most, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_to_end(command: Sequence[str], cwd: Path, env: Mapping[str, str], limit_s: float) -> tuple[str, int | None]:
    """What it printed and its exit code; None as the code of one that was ended because it took too long."""
    # To a file, not a pipe: a pipe stays open as long as anything that was started still lives.
    with tempfile.TemporaryFile() as output:
        # A session of its own: loader workers and ranks can then be ended with it, also when their parent is gone.
        process = subprocess.Popen(
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        code: int | None = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process.pid)
            process.wait()
        output.seek(0)
        return output.read().decode(errors="replace"), code


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
