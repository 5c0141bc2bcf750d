"""The line sampler, against a thread whose time is known."""

from __future__ import annotations

import random
import threading
import time

import pytest

from flatout.attach.watch.lines import LineSampler

pytestmark = pytest.mark.timing


class _Training:
    """What the sampler asks of a tracer and of the phases, of a thread that is always in the same one."""

    is_resting, inside, pending_becomes = False, 0, 0
    ended = 0

    def __init__(self) -> None:
        self.owner = threading.get_ident()


class _Watching(LineSampler):
    """Writes nothing, and adds up functions."""

    def __init__(self) -> None:
        super().__init__(_Training(), _Training(), _Nowhere, hz=80.0)  # type: ignore[arg-type]
        self._functions: dict[int, str] = {}

    def _number(self, filename: str, lineno: int, function: str) -> int:
        self._functions[len(self._functions)] = function
        return len(self._functions) - 1

    def _keep_to_budget(self) -> None:
        """Looks as often as it can: the more, the less chance there is in what it sees."""

    def _begin_slice(self, now: float) -> None:
        """All of the time counts."""

    def seconds(self, function: str) -> float:
        return sum(line.seconds for line in self._lines.values() if self._functions[line.number] == function)


class _Nowhere:
    def put(self, place: int, body: bytes) -> int:
        return 0

    def text(self, what: str, value: object) -> None:
        pass

    def close(self) -> None:
        pass


def _python(until: float) -> None:
    while time.perf_counter() < until:
        pass


def _letting_go(seconds: float) -> None:
    time.sleep(seconds)


def test_what_lines_took_in_the_first_step_is_forgotten() -> None:
    sampler = _Watching()
    sampler.start()
    _python(time.perf_counter() + 0.5)
    assert sampler.seconds("_python") > 0.1

    sampler._tracer.ended = 1
    _letting_go(0.5)
    sampler.stop()

    assert sampler.seconds("_python") < 0.1 < sampler.seconds("_letting_go")


def test_python_is_not_charged_to_the_call_that_follows_it() -> None:
    sampler = _Watching()
    sampler.start()
    spent = {"_python": 0.0, "_letting_go": 0.0}
    end = time.perf_counter() + 6
    chance = random.Random(1)  # so that the looks do not fall into step with the loop
    while (begun := time.perf_counter()) < end:
        _python(begun + 0.012 * (0.5 + chance.random()))
        between = time.perf_counter()
        _letting_go(0.008 * (0.5 + chance.random()))
        spent["_python"] += between - begun
        spent["_letting_go"] += time.perf_counter() - between
    sampler.stop()

    seen = {name: sampler.seconds(name) for name in spent}
    share = spent["_python"] / sum(spent.values())
    # If looks waited for the interpreter to be released it would seem to be a third of the time.
    assert seen["_python"] / sum(seen.values()) == pytest.approx(share, abs=0.15)
