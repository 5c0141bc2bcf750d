"""Processes of the script that were started together and wait at their gate, one for each of the next trials.

Most of a short trial is the start of Python and torch, which several can do at once in the time that one takes. They do
so before a trial and not beside it: while one is timed the others sleep.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from flatout.trials import apart

OUTPUT = "output.txt"
# As the gate within the process knows them.
GATE, HERE = "FLATOUT_GATE", b"here"
_OURS = "FLATOUT_"
# The first may take so long to its gate; the others are as quick, more or less.
_FIRST_S, _TIMES, _MORE_S = 90.0, 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Started:
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


class Ready:
    """Hands them out one by one, and starts new ones when there are none left; whatever is left ends on exit.

    It begins when a script is known to train in the very process that is started, and gives up for good with the first
    process that does not come to its gate: the script may want something that only one can have.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._is_known = self._is_given_up = False
        self._waiting: list[Started] = []
        self._argv: tuple[str, ...] = ()

    def __enter__(self) -> Ready:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(self) -> None:
        """The script is known to train in the process that is started."""
        self._is_known = True

    def take(self, argv: Sequence[str], environ: Callable[[Path], Mapping[str, str]]) -> Started | None:
        """One that waits, with a folder for what it has; None where a process has to be started for the trial.

        `environ` is that of one before it knows what it is to try.
        """
        if not self._is_known or self._is_given_up or self._most < 2:
            return None
        if tuple(argv) != self._argv:
            self._end_all()
        # The machine may have been short of memory meanwhile, and one of them gone.
        self._end([one for one in self._waiting if one.process.poll() is not None])
        if not self._waiting:
            self._argv = tuple(argv)
            try:
                self._is_given_up = not self._start(environ)
            except OSError:
                self._is_given_up = True
        if self._is_given_up:
            self._end_all()
            return None
        return self._waiting.pop(0)

    def _start(self, environ: Callable[[Path], Mapping[str, str]]) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        began_s, answers = time.perf_counter(), []
        for _ in range(self._most):
            place = Path(tempfile.mkdtemp(prefix="", dir=self._folder))
            told, orders = os.pipe()
            answer, said = os.pipe()
            variables = {**environ(place), GATE: f"{os.getpid()}:{told}:{said}"}
            process = apart.start(self._argv, variables, place / OUTPUT, pass_fds=(told, said))
            os.close(told)
            os.close(said)
            answers.append(answer)
            self._waiting.append(Started(process, variables, place, orders, 0.0))
        is_good = _all_here(answers)
        took_s = (time.perf_counter() - began_s) / self._most
        self._waiting = [replace(one, took_s=took_s) for one in self._waiting]
        return is_good

    def _end_all(self) -> None:
        self._end(list(self._waiting))

    def _end(self, ended: Sequence[Started]) -> None:
        for one in ended:
            self._waiting.remove(one)
            os.close(one.orders)
            apart.end(one.process)
            shutil.rmtree(one.place, ignore_errors=True)


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
