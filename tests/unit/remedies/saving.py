"""Reaches the saver that `checkpoint.async` has put in force, and the process that writes for it."""

from __future__ import annotations

import gc
import os
import signal

from flatout.remedies.checkpoint.saver import Saver


def saver_in_force() -> Saver:
    """Once something has been saved."""
    (found,) = [one for one in gc.get_objects() if type(one) is Saver and one._channel is not None]
    return found


def stop_writer() -> int:
    """As a disk that does not answer; returns its process id."""
    saver_in_force().wait_all()
    writer = saver_in_force()._writer
    assert writer is not None
    os.kill(writer.pid, signal.SIGSTOP)
    return writer.pid
