"""A first look at a loader: do samples draw random numbers, are they the same when read again, how long do they take?

A child process reads a few samples, as a worker would. The training process itself reads nothing twice and draws
nothing.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
from dataclasses import dataclass
from typing import Any

from .batching import Batching

_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """None: could not be seen."""

    draws: bool | None = None  # a sample moves a generator of torch, Python or numpy
    same: bool | None = None  # a sample read twice is the same, but for what it draws from those
    sample_s: float | None = None
    collate_draws: bool | None = False
    collates_same: bool | None = True
    changes: str | None = None  # what of the dataset is another after every reading
    order_draws: bool | None = False  # the sampler draws, or counts, not only when an epoch begins

    @property
    def is_repeatable(self) -> bool:
        """Whoever makes a batch, and when, makes the same."""
        return self.draws is False and self.same is True and not self.collate_draws

    @property
    def why_no_workers(self) -> str | None:
        """Why batches made by (more) workers would be others, beyond what workers draw."""
        if self.order_draws:
            return "its sampler draws or counts with every batch, and workers have batches drawn ahead of time"
        if self.same is False:
            return (
                "a sample read again is another one: its dataset changes as it is read, or has a generator of its own"
            )
        if self.collates_same is False:
            return "the same samples collated again are others: its collate function changes as it is called"
        return None

    @property
    def why_not_kept(self) -> str | None:
        """Why workers that live on would make others than new ones, beyond what they draw."""
        if self.changes is not None:
            return f"its dataset changes as it is read ({self.changes}), and new workers begin anew"
        return None if self.order_draws else self.why_no_workers


def look(torch: Any, dataset: Any, batching: Batching = Batching()) -> Look:  # noqa: B008  # it is frozen
    """At the first few samples, for a few seconds at most."""
    if not hasattr(dataset, "__getitem__") or not hasattr(os, "fork"):
        return Look()
    from ...feed.cache.dataset import uncached

    dataset = uncached(dataset)  # what is kept is quick to read again; the first epoch is not
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_and_leave(torch, dataset, batching, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _LIMIT_S)
        told = os.read(reading, 4096) if ready else b""
        return Look(**pickle.loads(told)) if told else Look()
    finally:
        os.close(reading)
        _end(child)


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # the script's own handler of SIGCHLD was quicker


def _answer_and_leave(torch: Any, dataset: Any, batching: Batching, writing: int) -> None:
    """In the child: nothing of the parent's may be run on the way out."""
    from .seeing import Seeing

    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        os.write(writing, pickle.dumps(Seeing(torch, dataset, batching).seen()))
    except BaseException:
        pass
    finally:
        os._exit(0)
