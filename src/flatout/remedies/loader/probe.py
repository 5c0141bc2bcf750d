"""A first look at a loader: do samples draw random numbers, are they the same when read again, how long do they take?

A child process reads a few samples, as a worker would. The training process itself reads nothing twice and draws
nothing.
"""

from __future__ import annotations

import dis
import os
import pickle
import select
import signal
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from ...records.message import Message, message
from .probe_child import Batching, ChildProbe

_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class LoaderProbe:
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
    def why_no_workers(self) -> Message | None:
        """Why batches made by (more) workers would be others, beyond what workers draw."""
        if self.order_draws:
            return message("loader.sampler_draws")
        if self.same is False:
            return message("loader.sample_changes")
        if self.collates_same is False:
            return message("loader.collate_changes")
        return None

    @property
    def why_not_kept(self) -> Message | None:
        """Why workers that live on would make others than new ones, beyond what they draw."""
        if self.changes is not None:
            return message("loader.dataset_changes", attribute=self.changes)
        return None if self.order_draws else self.why_no_workers


def probe_dataset(torch: Any, dataset: Any, batching: Batching | None = None) -> LoaderProbe:
    """At the first few samples, for a few seconds at most."""
    if not hasattr(dataset, "__getitem__") or not hasattr(os, "fork"):
        return LoaderProbe()
    from ...feed.cache.dataset import uncached

    dataset = uncached(dataset)  # what is kept is quick to read again; the first epoch is not
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_and_leave(torch, dataset, batching or Batching(), writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _LIMIT_S)
        told = os.read(reading, 4096) if ready else b""
        return LoaderProbe(**pickle.loads(told)) if told else LoaderProbe()
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
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        os.write(writing, pickle.dumps(ChildProbe(torch, dataset, batching).seen()))
    except BaseException:
        pass
    finally:
        os._exit(0)


# Each dataset is probed once: scripts make a loader again over the same data.


class LoaderProbes:
    """What was seen, by the dataset and what makes batches of it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: dict[tuple[int, object, object], tuple[Callable[[], Any], LoaderProbe]] = {}

    def at(self, loader: Any) -> LoaderProbe:
        """Nothing is seen of a stream: what a look takes from it may be gone."""
        dataset = loader.dataset
        if is_stream(loader):
            return LoaderProbe()
        batching = Batching.of(loader)
        key = (id(dataset), _collate_key(batching.collate_fn), type(batching.sampler))
        known = self._known.get(key)
        if known is not None and known[0]() is dataset:
            return known[1]
        seen = probe_dataset(self._torch, dataset, batching)
        try:
            self._known[key] = (weakref.ref(dataset), seen)
        except TypeError:
            pass  # a plain list
        return seen


def _collate_key(collate_fn: Any) -> object:
    """The same for a function that a script defines again and again."""
    return getattr(collate_fn, "__code__", type(collate_fn))


# IterableDatasets are not read to find out whether the same worker may iterate them again, since what is read may be
# gone. Their code is looked at instead.

_STORES = ("STORE_ATTR", "DELETE_ATTR")
_MOST = 64


def is_stream(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def why_not_repeatable(dataset: Any) -> Message | None:
    """Why a second pass in the same process may not be as the first, None where nothing speaks for that."""
    for name, value in list(getattr(dataset, "__dict__", {}).items())[:_MOST]:
        if _goes_on(value):
            return message("loader.stream_continues", attribute=name)
    for name, code in _called(type(dataset), "__iter__"):
        stored = next((str(step.argval) for step in dis.get_instructions(code) if step.opname in _STORES), None)
        if stored is not None:
            return message("loader.dataset_changes_in", attribute=stored, method=name)
    return None


def _goes_on(value: Any) -> bool:
    """Iterators, files, and generators of random numbers stand somewhere."""
    return any(hasattr(value, name) for name in ("__next__", "getstate", "bit_generator", "_bit_generator")) or (
        hasattr(value, "initial_seed") and hasattr(value, "get_state")
    )


def _called(kind: type, first: str) -> Iterator[tuple[str, CodeType]]:
    """A method and those of the same class that it names, and so on, with what is defined inside them."""
    waiting, seen = [first], {first}
    while waiting:
        name = waiting.pop()
        for code in _codes(getattr(getattr(kind, name, None), "__code__", None)):
            yield name, code
            more = [called for called in code.co_names if isinstance(getattr(kind, called, None), FunctionType)]
            waiting += [called for called in more if called not in seen]
            seen.update(more)


def _codes(code: Any) -> Iterator[CodeType]:
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from _codes(constant)


# What the run's record says about random numbers: other workers draw other ones.

DRAWS_OTHERS = "loader.draws_others"
OTHER_NUMBER = message("loader.other_number")
LIVE_ON = message("loader.live_on")
BY_PLACE = message("loader.by_place")

OTHER_BATCHES = message("loader.other_batches")
_STREAM = message("loader.stream_randomness_unknown")
_UNKNOWN = message("loader.randomness_unknown")
_NONE = message("loader.no_draws")
_NOT_COLLATED = message("loader.no_draws_collate_unknown")


def describe_randomness(looked: LoaderProbe, why: Message = OTHER_NUMBER, is_stream: bool = False) -> Message:
    """`why`: what makes the random numbers different, where any are drawn."""
    if looked.draws and looked.collate_draws:
        return draws_others("loader.both_draw", why)
    if looked.draws or looked.collate_draws:
        return draws_others("loader.samples_draw" if looked.draws else "loader.collate_draws", why)
    if looked.draws is None:
        return _STREAM if is_stream else _UNKNOWN
    return _NOT_COLLATED if looked.collate_draws is None else _NONE


def draws_others(who: str, why: Message) -> Message:
    """`who` draws: the id of a message."""
    return Message(DRAWS_OTHERS, {"why": why, "who": Message(who)})
