"""What the iterators of one loader share: what loading costs, how many workers there are, how they are seeded."""

from __future__ import annotations

import ast
import functools
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import _DatasetKind

from ..records.message import Message, message
from .crew import Crew
from .iterator import FeedIterator
from .machine import Relief, Shortage
from .memory import Memory
from .messages import Answer
from .tuning import Costs, Limits, Tuner
from .worker import Orders

_START_METHODS = ("fork", "spawn", "forkserver")
_RANDOM = (
    "samples of this dataset, or its collate_fn, use random numbers, and which worker does so depends on timing: runs "
    "with the same seed will differ. seeding='sample' makes them equal, whatever the workers; per_sample=False does as "
    "torch does"
)


class Feed:
    def __init__(
        self, seeding: str = "worker", compensate: bool = False, restarts: int = 10, draws_late: bool = False
    ) -> None:
        """`draws_late`: the sampler is asked when the first batch is, as it is without workers."""
        self.seeding = seeding
        self.draws_late = draws_late
        # The sampler is led to its end only when the last batch is asked for: it may draw there, and the script may
        # leave the epoch before.
        self.last_in_turn = False
        self.compensate = compensate
        self.restarts = restarts
        self.costs = Costs()
        self.tuner: Tuner | None = None
        self.epoch = -1
        self.skipped = 0
        # Called with the number of workers when that changes.
        self.on_workers: Callable[[int], None] | None = None
        # Called once, when samples or batches draw random numbers and runs will differ by it.
        self.on_random: Callable[[], None] = _warn_of_random
        # How many workers the script asked for, if it gets another number; called once, when some show its numbers.
        self.known_workers: int | None = None
        self.on_renumbered: Callable[[], None] | None = None
        # Called with what was done when memory ran short.
        self.on_short: Callable[[Message], None] | None = None
        self._made = 0
        self._warned = self._is_renewing = False
        self._shortage: Shortage | None = None

    def tune(self, loader: Any, workers: int, most: int | None = None, is_found: bool = False) -> None:
        """From now on `num_workers` and `prefetch_factor` are the tuner's; torch's checks of them are over.

        `is_found`: a run like this one came to just so many.
        """
        loader.num_workers = workers
        loader.prefetch_factor = loader.prefetch_factor or 2
        self.tuner = Tuner(workers, workers * loader.prefetch_factor, Limits(workers=most), is_found)

    def make_crew(self, loader: Any) -> Crew:
        self.costs.may_split = self.costs.may_split and not getattr(loader.dataset, "__getitems__", None)
        orders = Orders(
            dataset=loader.dataset,
            collate_fn=loader.collate_fn,
            init_fn=loader.worker_init_fn,
            worker=0,
            workers=loader.num_workers,
            seat=0,
            incarnation=0,
            base_seed=None,
            reseeds=self.compensate,
            seeding=self.seeding,
            dies_with_parent=False,
            known_workers=self.known_workers,
        )
        return Crew(_context(loader), orders, Memory())

    def make_iterator(self, loader: Any, crew: Crew | None = None) -> FeedIterator:
        return FeedIterator(loader, self, crew or self.make_crew(loader))

    # For iterators

    def ahead(self, iterator: FeedIterator) -> int:
        if self.tuner is not None:
            return self.tuner.ahead
        return int(iterator._num_workers * (iterator._prefetch_factor or 1))

    def begin_epoch(self) -> None:
        if self.tuner is not None:
            self.tuner.begin_epoch()

    def learn(self, answer: Answer) -> None:
        self.costs.learn(answer.tally, answer.place.data_bytes)
        self._made += 1
        if answer.used_randomness and not self._warned:
            self._warned = True
            self.on_random()
        if answer.is_renumbered and self.on_renumbered is not None:
            self.on_renumbered()
            self.on_renumbered = None

    def note_wait(self, iterator: FeedIterator, began_s: float, ended_s: float) -> None:
        self._look_at_memory(iterator)
        tuner = self.tuner
        if tuner is None or not tuner.step(began_s, ended_s, self._made, self.costs, iterator.batch_size):
            return
        self._resize(iterator, tuner.workers, -(-tuner.ahead // tuner.workers))

    def _resize(self, iterator: FeedIterator, workers: int, ahead_each: int) -> None:
        iterator._prefetch_factor = ahead_each
        loader = iterator.loader()
        if loader is not None:
            loader.num_workers, loader.prefetch_factor = workers, ahead_each
        iterator.resize(workers)
        if self.on_workers is not None:
            self.on_workers(workers)

    def _look_at_memory(self, iterator: FeedIterator) -> None:
        """Additional workers must not take memory that the script needs."""
        if self.known_workers is None:
            return
        if self._is_renewing:
            self._is_renewing = not iterator.fill_up()
            return
        if self._shortage is None:
            self._shortage = Shortage(self.known_workers)
        relief = self._shortage.relief(iterator._num_workers)
        if relief is not None:
            self._relieve(iterator, relief)

    def _relieve(self, iterator: FeedIterator, relief: Relief) -> None:
        if relief.renewed:
            self._is_renewing = True
            iterator.renew(relief.renewed)
            done = message("memory_short.renewed", renewed=relief.renewed, workers=relief.workers)
        else:
            if self.tuner is not None:
                self.tuner.settle_for(relief.workers)
            done = message("memory_short.fewer", workers=relief.workers, before=iterator._num_workers)
            self._resize(iterator, relief.workers, iterator._prefetch_factor)
        if self.on_short is not None:
            self.on_short(done)


def _warn_of_random() -> None:
    warnings.warn(_RANDOM, UserWarning, stacklevel=7)


def why_not_fed(loader: Any) -> str | None:
    """Why torch's own iterator is used for this loader, None if ours can be."""
    checks = {
        "no workers": loader.num_workers > 0,
        "an iterable dataset": loader._dataset_kind == _DatasetKind.Map,
        "no batches to put together": loader._auto_collation,
        "in_order=False": getattr(loader, "in_order", True),
        "a data pipe": not isinstance(loader.dataset, IterDataPipe | MapDataPipe),
        "no batches ahead": bool(loader.prefetch_factor),
        "not Linux": sys.platform == "linux" and hasattr(os, "memfd_create"),
        "a start method of its own": _context(loader).get_start_method() in _START_METHODS,
    }
    return next((why for why, holds in checks.items() if not holds), None)


def _context(loader: Any) -> Any:
    return loader.multiprocessing_context or torch.multiprocessing


# Why a loader cannot have workers, or more of them, told before any process is started.


# What code names when it gives each worker its own share.
_SHARDING = {
    "get_worker_info",
    "worker_info",
    "split_by_worker",
    "nodesplitter",
    "workersplitter",
    "sharding_filter",
    "apply_sharding",
}


def why_no_workers(dataset: Any, collate_fn: Any, worker_init_fn: Any, start_method: str) -> Message | None:
    """None when workers can be started by `start_method`."""
    if isinstance(dataset, IterableDataset) and not _is_sharded(dataset, worker_init_fn):
        return message("workers.not_sharded", dataset=type(dataset).__qualname__)
    if start_method == "fork":
        return None
    if not _main_is_guarded():
        return message("workers.main_not_guarded", method=start_method)
    for what, value in (("dataset", dataset), ("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        why = _unpicklable(value)
        if why is not None:
            return message("workers.unpicklable", argument=what, method=start_method, error=why)
    return None


def _unpicklable(value: Any) -> str | None:
    try:
        ForkingPickler(_Nowhere(), 5).dump(value)
    except Exception as error:
        # A class of the user's may raise anything when it is pickled.
        return f"{type(error).__name__}: {error}"
    return None


class _Nowhere(io.RawIOBase):
    """Takes any number of bytes and keeps none."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


def _is_sharded(dataset: Any, worker_init_fn: Any) -> bool:
    """Whether its classes, or what every worker calls first, speak of workers. If not, samples would come twice."""
    members = [
        member
        for kind in type(dataset).__mro__
        if kind not in (IterableDataset, object)
        for member in vars(kind).values()
    ]
    codes = [getattr(_function_of(member), "__code__", None) for member in [*members, worker_init_fn]]
    return any(_SHARDING & names for code in codes if code is not None for names in _names(code))


def _function_of(member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, functools.partial):
        return member.func
    return member.fget if isinstance(member, property) else member


def _names(code: CodeType) -> Iterator[set[str]]:
    yield {*code.co_names, *code.co_varnames}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _main_is_guarded() -> bool:
    """Whether the script can be imported without running. Where that cannot be told: yes."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if file is None:
        return True
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    return any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in body)
