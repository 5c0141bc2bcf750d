"""A first look at a dataset: does a sample draw random numbers, is it the same when read again, how long does it take?

A child process reads a few samples, as a worker would. The training process itself reads nothing twice and draws
nothing.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

_LIMIT_S = 5.0
_ENOUGH_S = 0.3
_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Look:
    """None: could not be seen."""

    draws: bool | None = None  # moves a generator of torch, Python or numpy
    same: bool | None = None  # a sample read twice is the same, but for what it draws from those
    sample_s: float | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whoever reads a sample, and when, gets the same."""
        return self.draws is False and self.same is True


def look(torch: Any, dataset: Any) -> Look:
    """At the first few samples, for a few seconds at most."""
    if not hasattr(dataset, "__getitem__") or not hasattr(os, "fork"):
        return Look()
    from ...feed.cache.dataset import uncached

    dataset = uncached(dataset)  # what is kept is quick to read again; the first epoch is not
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_and_leave(torch, dataset, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _LIMIT_S)
        told = os.read(reading, 4096) if ready else b""
        return Look(*pickle.loads(told)) if told else Look()
    finally:
        os.close(reading)
        _end(child)


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # the script's own handler of SIGCHLD was quicker


def _answer_and_leave(torch: Any, dataset: Any, writing: int) -> None:
    """In the child: nothing of the parent's may be run on the way out."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        os.write(writing, pickle.dumps(_seen(torch, dataset)))
    except BaseException:
        pass
    finally:
        os._exit(0)


def _seen(torch: Any, dataset: Any) -> tuple[bool, bool, float]:
    one, first_s, after = _read(torch, dataset, 0)
    untouched = _seeded(torch)
    # The first reading of all also opens what is opened once; the second is timed.
    other, again_s, _ = _read(torch, dataset, 0)
    times_s = [again_s]
    for index in range(1, min(_SAMPLES, len(dataset) if hasattr(dataset, "__len__") else 1)):
        if first_s + sum(times_s) > _ENOUGH_S:
            break
        times_s.append(_read(torch, dataset, index)[1])
    return after != untouched, _alike(one, other), statistics.median(times_s)


def _read(torch: Any, dataset: Any, index: int) -> tuple[Any, float, list[object]]:
    """A sample read from the same random state, the seconds it took, and the random state then."""
    _seeded(torch)
    began_s = time.perf_counter()
    sample = dataset[index]
    return sample, time.perf_counter() - began_s, _states(torch)


def _seeded(torch: Any) -> list[object]:
    torch.default_generator.manual_seed(0)
    if "random" in sys.modules:
        sys.modules["random"].seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    return _states(torch)


def _states(torch: Any) -> list[object]:
    found: list[object] = [bytes(torch.get_rng_state().numpy().tobytes())]
    if "random" in sys.modules:
        found.append(sys.modules["random"].getstate())
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state()
        found.append([part.tobytes() if hasattr(part, "tobytes") else part for part in state])
    return found


def _alike(one: Any, other: Any) -> bool:
    from ...feed.cache.randomness import alike

    try:
        return alike(one, other) or pickle.dumps(one) == pickle.dumps(other)
    except Exception:
        return False
