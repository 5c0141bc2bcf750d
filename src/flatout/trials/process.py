"""A process of the script with limits: of time, of the host's memory, and of how long it may go without a step."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from flatout.feed.host_memory import memory
from flatout.trials import apart
from flatout.trials.ready import OUTPUT, Started

_LOOK_S = 0.2
_STEPS_LOOK_S = 2.0
_GRACE_S = 5.0
# Below this share of the host's memory, or of its control group's, the kernel would soon choose a victim, and not
# always the trial.
_LEAST_FREE = 0.03
# No step for so long, and for so many times the longest gap between looks that brought one, is a hang.
_HUNG_S = 120.0


@dataclass(frozen=True, slots=True)
class Exit:
    """`code` as a shell gives it. `cut` says why it was made to end, if it was."""

    code: int
    wall_s: float
    cut: str = ""


class Process:
    """Starts on entry, or goes on where it waited; whatever is left of it is killed on exit."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], output: Path, started: Started | None = None
    ) -> None:
        self._argv = argv
        self._environ = environ
        self._output = output
        self._started = started
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0

    def __enter__(self) -> Process:
        if self._started is not None:
            (self._started.place / OUTPUT).replace(self._output)
            self._began_s = time.perf_counter() - self._started.took_s
            self._process = self._started.go(self._environ)
        else:
            self._began_s = time.perf_counter()
            self._process = apart.start(self._argv, self._environ, self._output)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        apart.end(self._process, _GRACE_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self, limit_s: float, steps: Callable[[], int], first_step_s: float) -> Exit:
        """Until it ends or is cut off. `steps` tells how many it has made; the first may take `first_step_s`."""
        assert self._process is not None
        cut, seen, moved_s, next_look_s = "", 0, self._began_s, self._began_s + _STEPS_LOOK_S
        while not cut:
            try:
                self._process.wait(_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                pass
            now = time.perf_counter()
            if now - self._began_s > limit_s:
                cut = "out of time"
            elif memory().free_share < _LEAST_FREE:
                cut = "out of memory"
            elif now >= next_look_s:
                next_look_s = now + _STEPS_LOOK_S
                count = steps()
                if count > seen:
                    seen, moved_s = count, now
                elif now - moved_s > (_HUNG_S if seen else first_step_s):
                    cut = "hung"
        if cut:
            apart.end(self._process, _GRACE_S)
        code = self._process.wait()
        return Exit(128 - code if code < 0 else code, time.perf_counter() - self._began_s, cut)
