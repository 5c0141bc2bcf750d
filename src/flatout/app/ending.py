"""A request to end is as good as Ctrl-C: the trial that runs ends with us, and what was found is shown."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What a shell makes of Ctrl-C.
INTERRUPTED = 130


@contextmanager
def ended_politely() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
