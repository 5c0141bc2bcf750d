"""The training comes first, wherever it and the dashboard want the same core."""

from __future__ import annotations

import os

# Less than a tenth of a contended core, and still enough to start within seconds where all of them are busy.
_NICE = 10


def give_way(pid: int = 0) -> None:
    """Lower the priority of a process of ours (0: this one)."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, max(_NICE, os.getpriority(os.PRIO_PROCESS, pid)))
    except OSError:
        pass  # it has ended
