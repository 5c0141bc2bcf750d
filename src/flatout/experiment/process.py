"""A process of the script with limits: of time, of the host's memory, and of how long it may go without a step."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from flatout.feed.machine import memory

_LOOK_S = 0.2
_STEPS_LOOK_S = 2.0
_GRACE_S = 5.0
# Below this share of the host's memory, or of its control group's, the kernel would soon choose a victim, and not
# always the trial.
_LEAST_FREE = 0.03
# Why a process is made to end, as its trial's ending.
Cut = Literal["out of time", "out of memory", "hung"]
# No step for so long, and for so many times the longest gap between looks that brought one, is a hang.
_HUNG_S = 120.0


@dataclass(frozen=True, slots=True)
class Exit:
    """`code` as a shell gives it. `cut` says why it was made to end, if it was."""

    code: int
    wall_s: float
    cut: Cut | None = None


class Process:
    """Starts at once, or goes on where it waited. A context manager: whatever is left of it is killed on exit."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], output: Path, started: Prestarted | None = None
    ) -> None:
        self._began_s = time.perf_counter()
        if started is not None:
            (started.place / OUTPUT).replace(output)
            self._began_s -= started.took_s
            self._process = started.go(environ)
        else:
            self._process = start_session(argv, environ, output)
        self.pid = self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        end_session(self._process, _GRACE_S)

    def wait(self, limit_s: float, steps: Callable[[], int], first_step_s: float) -> Exit:
        """Until it ends or is cut off. `steps` tells how many it has made; the first may take `first_step_s`."""
        cut: Cut | None = None
        seen, moved_s, next_look_s = 0, self._began_s, self._began_s + _STEPS_LOOK_S
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
            end_session(self._process, _GRACE_S)
        code = self._process.wait()
        return Exit(128 - code if code < 0 else code, time.perf_counter() - self._began_s, cut)


# Sessions: each process is the leader of its own, so that its workers and ranks end with it.


def start_session(
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


def end_session(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
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


# Processes that were started ahead of time and wait at their gate, one for each of the next trials.
#
# Most of a short trial is the start of Python and torch, which several can do at once in the time that one takes. They
# do so before a trial and not beside it: while one is timed the others sleep.

OUTPUT = "output.txt"
# As the gate within the process knows them.
GATE, HERE = "FLATOUT_GATE", b"here"
_OURS = "FLATOUT_"
# The first may take so long to its gate; the others are as quick, more or less.
_FIRST_S, _TIMES, _MORE_S = 90.0, 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Prestarted:
    """One that waits. `took_s` is its part of what the start of them all took."""

    process: subprocess.Popen[bytes]
    environ: Mapping[str, str]
    place: Path
    orders: int
    took_s: float

    def go(self, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """With the environment it would have been started with. One that has died meanwhile ends as any that dies."""
        names = {name for name in (*self.environ, *environ) if name.startswith(_OURS)}
        told = {name: environ.get(name) for name in names if name != GATE}
        try:
            with open(self.orders, "w", encoding="utf-8") as orders:
                orders.write(json.dumps(told))
        except BrokenPipeError:
            pass
        return self.process


class PrestartedPool:
    """Hands them out one by one, and starts new ones when there are none left; whatever is left ends on exit.

    It begins when a script is known to train in the very process that is started, and gives up for good with the first
    process that does not come to its gate: the script may want something that only one can have.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._is_known = self._is_given_up = self._imports_compiler = False
        self._waiting: list[Prestarted] = []
        self._argv: tuple[str, ...] = ()

    def __enter__(self) -> PrestartedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._waiting)
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(self, imports_compiler: bool) -> None:
        """The script is known to train in the process that is started, and whether it imports torch's compiler."""
        if not self._is_known:
            self._is_known, self._imports_compiler = True, imports_compiler

    def take(self, argv: Sequence[str], environ: Callable[[Path], Mapping[str, str]]) -> Prestarted | None:
        """A process that waits, or None where one has to be started. `environ` is that of a process without a trial."""
        if not self._is_known or self._is_given_up or self._most < 2:
            return None
        if tuple(argv) != self._argv:
            self._end(self._waiting)
        # The machine may have been short of memory meanwhile, and one of them gone.
        self._end([prestarted for prestarted in self._waiting if prestarted.process.poll() is not None])
        if not self._waiting:
            self._argv = tuple(argv)
            try:
                self._is_given_up = not self._start(environ)
            except OSError:
                self._is_given_up = True
        if self._is_given_up:
            self._end(self._waiting)
            return None
        return self._waiting.pop(0)

    def _start(self, environ: Callable[[Path], Mapping[str, str]]) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        began_s, answers = time.perf_counter(), []
        for _ in range(self._most):
            place = Path(tempfile.mkdtemp(prefix="", dir=self._folder))
            told, orders = os.pipe()
            answer, said = os.pipe()
            variables = {**environ(place), GATE: f"{os.getpid()}:{told}:{said}:{self._imports_compiler:d}"}
            process = start_session(self._argv, variables, place / OUTPUT, pass_fds=(told, said))
            os.close(told)
            os.close(said)
            answers.append(answer)
            self._waiting.append(Prestarted(process, variables, place, orders, 0.0))
        is_good = _all_here(answers)
        took_s = (time.perf_counter() - began_s) / self._most
        self._waiting = [replace(prestarted, took_s=took_s) for prestarted in self._waiting]
        return is_good

    def _end(self, ended: Sequence[Prestarted]) -> None:
        for prestarted in list(ended):
            self._waiting.remove(prestarted)
            os.close(prestarted.orders)
            end_session(prestarted.process)
            shutil.rmtree(prestarted.place, ignore_errors=True)


def _all_here(answers: Sequence[int]) -> bool:
    """Whether all come to their gate in time, and have nothing running."""
    began_s, left, until_s = time.perf_counter(), set(answers), _FIRST_S
    try:
        while left and (time_s := began_s + until_s - time.perf_counter()) > 0:
            for answer in select.select(list(left), [], [], time_s)[0]:
                if os.read(answer, len(HERE)) != HERE:
                    return False
                if len(left) == len(answers):
                    until_s = _TIMES * (time.perf_counter() - began_s) + _MORE_S
                left.remove(answer)
        return not left
    finally:
        for answer in answers:
            os.close(answer)
