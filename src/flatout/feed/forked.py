"""Asks a forked child: what it opens, draws or changes is as before here, and one that hangs is given up."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any

import torch


def ask_child(answer: Callable[[], Any], limit_s: float) -> Any:
    """What `answer()` gives in a child process; None where it died or failed. Raises TimeoutError."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_and_leave(answer, writing)
    os.close(writing)
    try:
        told = _read_all(reading, time.monotonic() + limit_s)
        return pickle.loads(told) if told else None
    finally:
        os.close(reading)
        try:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # the script's own handler of SIGCHLD was quicker


def _answer_and_leave(answer: Callable[[], Any], writing: int) -> None:
    """In the child: nothing of the parent's may run on the way out, no finalizers, no output."""
    try:
        # What the dataset prints is printed when it is really read.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        # As in a loader's worker: the parent's threads are not here, and work given to them would never end.
        torch.set_num_threads(1)
        os.write(writing, pickle.dumps(answer()))
    finally:
        os._exit(0)


def _read_all(pipe: int, deadline_s: float) -> bytes:
    """Everything until the other end is closed."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
