"""Which lines of the user's dataset, transforms and collate function the time of a loader's worker goes to.

One worker of a loader is enough: they all run the same code. Only looks while it fetches count, not its waiting for
something to do. What is seen is written at once: a worker may be gone the next moment without a word.

A thread that wakes up gets the interpreter when the other lets go of it, at the latest after five milliseconds. A
sample is often quicker than that, and would be seen only where it lets go by itself: reading a file, copying an array.
So the sampler wakes up a second time for each look, shortly after and with next to no patience.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType

from . import wire
from .lines import DEFAULT_HZ, Sampler
from .output import Output
from .sites import rank_of

_DEEPEST = 200
# How long Python lets another thread wait, and how long it lets us: only while a look is under way.
_PATIENT_S, _IMPATIENT_S = 0.005, 0.00005
_LIBRARY, _USER = 1, 2


class WorkerSampler(Sampler):
    """Made in the worker, by the thread that fetches. `is_fetching` says whether it does, `root` what it then runs."""

    def __init__(
        self,
        is_fetching: Callable[[], bool],
        root: CodeType,
        make_output: Callable[[], Output],
        hz: float = DEFAULT_HZ,
    ) -> None:
        super().__init__(make_output, hz)
        self._is_fetching = is_fetching
        self._root = root
        self._thread_id = get_ident()

    def _look(self, seconds: float) -> None:
        if not self._is_fetching():
            return
        self._wake_again()
        if not self._is_fetching():
            return
        frame = frame_within(sys._current_frames().get(self._thread_id), self._root)
        if frame is not None:
            self._put(self._add(self._line_of(frame, wire.DATA), seconds), wire.DATA)

    def _wake_again(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_IMPATIENT_S)
        ours = sys.getswitchinterval()
        try:
            time.sleep(self._random.random() * _PATIENT_S)
        finally:
            if sys.getswitchinterval() == ours:
                sys.setswitchinterval(before)


def frame_within(frame: FrameType | None, root: CodeType) -> FrameType | None:
    """The innermost frame of the user's own code in a call of `root`; failing that of a library, failing that of torch.

    None where `root` is not being called. A forked worker's stack goes on with that of the process it was forked from,
    so the search must end there.
    """
    first, user, library = frame, None, None
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        if frame.f_code is root:
            return None if frame is first else user or library or first
        rank = rank_of(frame.f_code.co_filename)
        if rank == _USER and user is None:
            user = frame
        elif rank == _LIBRARY and library is None:
            library = frame
        frame = frame.f_back
    return user  # a very deep recursion of the user's own
