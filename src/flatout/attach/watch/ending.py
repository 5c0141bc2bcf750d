"""Ends the script on request, after so many steps or so much time, as Ctrl-C would: its own cleanup runs."""

from __future__ import annotations

import _thread
import math
import os
import signal
import sys
import threading
from collections.abc import Sequence
from threading import get_ident
from typing import Any

from ..context import Context, Watcher
from ..tracer import clock

# Files in the run's folder: the first step was made; the script ends after the step whose index is in it.
BEGAN, ENDS = "look-began", "look-ends"
# So long before the end the ranks are told which step is the last: each looks ten times a second, or at every step.
_NOTICE_S = 0.5


class EndOfLook(KeyboardInterrupt):
    """What the script sees: a Ctrl-C, so what it does about one is done, and `finally` is reached."""


class EndingWatch(Watcher):
    """Several ranks end after the same step: one that left by its own clock would leave the others waiting."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        steps = context.settings.get("end_steps")
        self._last = int(steps) - 1 if steps else math.inf  # the index of the last step
        self._seconds = float(context.settings.get("end_s") or math.inf)
        self._folder = os.environ.get("FLATOUT_RUN_DIR", "")
        self._is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
        self._leads = os.environ.get("RANK", "0") == "0"
        self._is_over = False
        self._taken: dict[int, int] = {}
        self._handle: Any = None
        self.at_fork()

    def install(self) -> None:
        if self._last < math.inf:
            from torch.optim import optimizer

            self._handle = optimizer.register_optimizer_step_post_hook(self._count)

    def at_uninstall(self) -> None:
        self._is_over = True
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _count(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Have the last step read at once; the first of many short ones are else read together."""
        if self._compiling() or self._is_over or self._tracer.owner != get_ident():
            return
        try:
            mine = id(optimizer)
            self._taken[mine] = count = self._taken.get(mine, 0) + 1
            if count > self._last:
                self._tracer.wake()
                self._tracer.flush(clock())
        except Exception as error:
            self._trouble(error)

    def at_fork(self) -> None:
        self._taken.clear()
        self._began_s = -1.0
        self._began = self._read = -1
        self._is_near = False

    def at_stop(self) -> None:
        self._is_over = True

    def at_step_end(self, codes: Sequence[int], index: int, now: float) -> bool:
        """Returns whether the last step is so near that each is to be read by itself."""
        if self._is_over or index < 0:
            return False
        if self._began_s < 0:
            self._began_s, self._began = now, index
            self._note(BEGAN, index)
        if now - self._began_s >= self._seconds and self._leads and self._last == math.inf:
            self._last = index if self._is_alone else index + self._steps_of_notice(index, now)
            self._note(ENDS, int(self._last))
        elif not self._leads and self._seconds < math.inf and self._last == math.inf:
            self._last = self._told()
        if index >= self._last:
            self._end(index)
        read, self._read = index - self._read, index
        self._is_near |= self._last - index <= 2 * read + 2
        return self._is_near

    def _steps_of_notice(self, index: int, now: float) -> int:
        step_s = (now - self._began_s) / max(1, index - self._began)
        return max(2, math.ceil(_NOTICE_S / max(step_s, 1e-6)))

    def _note(self, name: str, index: int) -> None:
        """Whole or not at all: others read it while it is written."""
        path = os.path.join(self._folder, name)
        try:
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                file.write(str(index))
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            pass

    def _told(self) -> float:
        try:
            with open(os.path.join(self._folder, ENDS), encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
            return math.inf

    def _end(self, index: int) -> None:
        self._is_over = True
        self._note(ENDS, index)
        self._end_quietly()
        if threading.current_thread() is not threading.main_thread():
            _thread.interrupt_main()
            raise SystemExit(0)
        if callable(handler := signal.getsignal(signal.SIGINT)) and handler is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)  # the script has its own way to end
            return
        raise EndOfLook

    def _end_quietly(self) -> None:
        """A script that does nothing about it ends well, and without a traceback."""
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            if issubclass(kind, KeyboardInterrupt):
                raise SystemExit(0)
            before(kind, error, trace)

        sys.excepthook = hook
