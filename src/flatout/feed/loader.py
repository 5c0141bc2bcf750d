"""`flatout.DataLoader`: torch's DataLoader, with samples instead of batches handed to workers."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind, _MultiProcessingDataLoaderIter

from .crew import Crew
from .feeding import Feed, why_not_fed
from .iterator import FeedIterator
from .seeding import SEEDINGS, SeededIterator, random_states, set_random_states


class DataLoader(TorchLoader[Any]):
    """Takes all of torch's arguments, gives the same batches in the same order. Beyond them:

    per_sample: hand out samples, not batches: a slow sample holds up nothing behind it, a worker that dies is replaced
        and its samples are loaded again. False: torch's own iterator, bit-identical with random transforms too.
    seeding: "worker" seeds as torch does, so random transforms depend on which worker happens to load a sample;
        "sample" seeds by the sample's place in the epoch, independent of the workers and their number.
    compensate: with persistent workers, draw per epoch what fresh workers would draw: the same order and seeds as
        without persistent workers.
    restarts: how many dead workers are replaced in one pass before that is an error.
    tune: find the number of workers and batches ahead while running.
    """

    def __init__(
        self,
        *args: Any,
        per_sample: bool = True,
        seeding: str = "worker",
        compensate: bool = False,
        restarts: int = 10,
        tune: bool = False,
        **kwargs: Any,
    ) -> None:
        if seeding not in SEEDINGS:
            raise ValueError(f"seeding must be one of {', '.join(SEEDINGS)}, got {seeding!r}")
        if seeding == "sample" and not per_sample:
            raise ValueError("seeding='sample' needs per_sample=True: torch's own workers seed per worker")
        if restarts < 0:
            raise ValueError(f"restarts must be at least 0, got {restarts}")
        self.per_sample = per_sample
        self.seeding = seeding
        self.compensate = compensate
        self.restarts = restarts
        self.tune = tune
        self._feed = Feed(seeding, compensate, restarts)
        self._warm: Crew | None = None
        self._resumed: dict[str, Any] | None = None
        self._start: dict[str, Any] | None = None
        self._skipping: SkippingSampler | None = None
        self._current: weakref.ref[Any] | None = None
        super().__init__(*args, **kwargs)
        if tune and self._is_batched_map():
            self._feed.tune(self, self.num_workers or 1)

    # Iterating

    @property
    def _index_sampler(self) -> Any:
        return self._skipping or super()._index_sampler

    def __iter__(self) -> Any:
        self._feed.epoch += 1
        resumed, self._resumed = self._resumed, None
        if resumed is not None and resumed["batches"]:
            iterator = self._resume(resumed)
        else:
            self._feed.skipped = 0
            if self._skipping is not None:
                self._skipping.stop()
            self._start = random_state(self._generators())
            iterator = super().__iter__()
        self._current = weakref.ref(iterator)
        return iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self._why_not_fed() is not None:
            if self.compensate and self.persistent_workers and self.num_workers:
                return _Compensating(self)
            if self.seeding == "sample" and self.num_workers == 0 and self._is_batched_map():
                return SeededIterator(self)
            return super()._get_iterator()
        if self._feed.tuner is None:
            self.check_worker_number_rationality()
        warm, self._warm = self._warm, None
        return self._feed.make_iterator(self, warm)

    def _why_not_fed(self) -> str | None:
        """Why torch's own iterator is used, None if ours is."""
        return why_not_fed(self) if self.per_sample else "per_sample=False"

    def _is_batched_map(self) -> bool:
        return self._dataset_kind == _DatasetKind.Map and self._auto_collation

    def warm(self) -> None:
        """Start the workers now, while the model is still being built. The dataset is taken as it is now."""
        if self._why_not_fed() is None and self._warm is None and self._iterator is None:
            self._warm = self._feed.make_crew(self)
            self._warm.grow(self.num_workers, None)

    def resize(self, workers: int) -> None:
        """Have that many workers from now on, also in the middle of an epoch; the order of batches stays."""
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.num_workers = workers
        iterator = self._iterating()
        if isinstance(iterator, FeedIterator):
            iterator.resize(workers)

    def _iterating(self) -> Any:
        return self._current() if self._current is not None else None

    # Stopping and going on

    def _generators(self) -> list[torch.Generator]:
        found = [self.generator, getattr(self.sampler, "generator", None)]
        found.append(getattr(getattr(self.batch_sampler, "sampler", None), "generator", None))
        unique = {id(g): g for g in found if isinstance(g, torch.Generator)}
        return list(unique.values())

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: take it between two batches, give it to a loader made alike."""
        iterator = self._iterating()
        batches = self._feed.skipped + iterator._num_yielded if iterator is not None else 0
        if self._resumed is not None:
            return self._resumed
        if iterator is None or self._is_over(batches):
            now = random_state(self._generators())
            return {"version": STATE_VERSION, "epoch": self._feed.epoch + 1, "batches": 0, "start": now}
        return {"version": STATE_VERSION, "epoch": self._feed.epoch, "batches": batches, "start": self._start}

    def _is_over(self, batches: int) -> bool:
        try:
            return batches >= len(self)
        except TypeError:
            return False

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter()` goes on from there."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"this loader reads states of version {STATE_VERSION}, got {state.get('version')!r}")
        self._resumed = state
        self._feed.epoch = state["epoch"] - 1
        self._iterator = None
        if not state["batches"]:
            for generator, saved in zip(self._generators(), state["start"]["generators"], strict=True):
                generator.set_state(saved)

    def _resume(self, state: dict[str, Any]) -> Any:
        """Draw as at the epoch's start, then leave out what was taken. The process's own random state stays."""
        before = random_states()
        self._start = state["start"]
        set_random_state(self._generators(), state["start"])
        self._feed.skipped = state["batches"]
        iterable = self._dataset_kind == _DatasetKind.Iterable
        if not iterable:
            self._skipping = SkippingSampler(super()._index_sampler, self._feed.skipped)
        try:
            iterator = super().__iter__()
            if not iterable and not isinstance(iterator, _MultiProcessingDataLoaderIter):
                draw_first(iterator)
        finally:
            if not self.persistent_workers:
                self._skipping = None
        set_random_states(before)
        if iterable:
            for _ in range(self._feed.skipped):
                next(iterator)
            iterator._num_yielded = 0
        return iterator


class _Compensating(_MultiProcessingDataLoaderIter):
    """torch's own, drawing per epoch what a fresh iterator would draw."""

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            iter(self._index_sampler)
            self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        super()._reset(loader, first_iter)


# A loader made again from an existing one, with other settings.

_SAME = ("dataset", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "pin_memory_device")
_OURS = ("per_sample", "seeding", "compensate", "restarts", "tune")


def remake_loader(loader: TorchLoader[Any], **changes: Any) -> DataLoader:
    """A loader of ours over the same dataset and the same sampler, with `changes`."""
    settings = {name: getattr(loader, name) for name in _SAME}
    settings |= {name: getattr(loader, name) for name in _OURS if hasattr(loader, name)}
    settings["num_workers"] = loader.num_workers
    settings["in_order"] = getattr(loader, "in_order", True)
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
        settings["persistent_workers"] = loader.persistent_workers
        settings["multiprocessing_context"] = loader.multiprocessing_context
    if isinstance(loader.dataset, IterableDataset):
        settings |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_size is None and loader.batch_sampler is not None:
        settings["batch_sampler"] = loader.batch_sampler
    else:
        settings |= {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    settings |= changes
    if not settings["num_workers"]:
        # torch refuses these without workers.
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            settings.pop(name, None)
    if not hasattr(loader, "in_order"):
        del settings["in_order"]  # an older torch
    return DataLoader(**settings)


def autotune(loader: TorchLoader[Any]) -> DataLoader:
    """The same batches from a loader that finds its number of workers, and of batches ahead, while it runs."""
    return remake_loader(loader, tune=True)


# The position in the data, so that a resumed run goes on with the next batch.

STATE_VERSION = 1


class SkippingSampler:
    """A sampler without its first entries, for the one epoch that is resumed."""

    def __init__(self, sampler: Any, entries: int) -> None:
        self._sampler = sampler
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        # The sampler's own `__iter__` runs now, as it does without us; what it gives is drawn when it is asked for.
        return itertools.islice(iter(self._sampler), self._entries, None)

    def stop(self) -> None:
        """From the next epoch on nothing is skipped."""
        self._entries = 0

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def draw_first(iterator: Any) -> None:
    """Have an iterator without workers draw its first index now, as one with workers does."""
    entries = iterator._sampler_iter
    first = list(itertools.islice(entries, 1))
    iterator._sampler_iter = itertools.chain(first, entries)


def random_state(generators: list[torch.Generator]) -> dict[str, Any]:
    """All that a sampler may draw from."""
    return {"process": random_states(), "generators": [generator.get_state() for generator in generators]}


def set_random_state(generators: list[torch.Generator], state: dict[str, Any]) -> None:
    set_random_states(state["process"])
    for generator, saved in zip(generators, state["generators"], strict=True):
        generator.set_state(saved)
