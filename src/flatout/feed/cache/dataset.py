"""`cached(dataset)`: the same dataset, whose samples are kept in memory that all workers and ranks of a host share.

Safe to use on any map-style dataset: what is random, cannot be kept or has no room is read as before, and one line says
so. Nothing that goes wrong in the cache reaches the training.
"""

from __future__ import annotations

import copy
import operator
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import torch.utils.data as data

from ...records.message import Message, message
from ..machine import ranks_here
from ..reasons import error_text, say
from ..seeding import moved_generator, random_states
from .key import contents
from .place import Note, Place, find_place, parse_bytes
from .policy import choose, innermost
from .randomness import NoCut, OwnGenerators, Reader
from .segment import Unavailable, Word
from .table import MISS, POLICIES, CacheStats, open_table, read_stats, release_unused

_STALE = object()
_CHANGED = message("cache.dataset_changed")


def write_note(fact: Message) -> None:
    """The default for notices: one line on stderr."""
    sys.stderr.write(f"flatout: {say(fact)}\n")


def _write_to(note: Callable[[str], None], fact: Message) -> None:
    note(say(fact))


def cached(
    dataset: Any,
    budget: str | int | None = None,
    policy: str | None = None,
    spill: str | bool | None = None,
    note: Callable[[str], None] | None = None,
) -> Any:
    """`dataset` with a shared cache in front; `dataset` itself where it cannot be cached, and `note` is told why.

    `budget` ("20GB") is for all workers and ranks of this host together; by default half of the memory that is free.
    `policy` is "keep", "lru" or "clairvoyant". `spill` is a folder on a local disk, for where /dev/shm is too
    small; True takes the one for temporary files.
    """
    return keep_samples(dataset, write_note if note is None else partial(_write_to, note), budget, policy, spill)


def keep_samples(
    dataset: Any,
    note: Note,
    budget: str | int | None = None,
    policy: str | None = None,
    spill: str | bool | None = None,
) -> Any:
    """The same as `cached`; `note` is told messages."""
    if policy is not None and policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    budget_bytes = None if budget is None else parse_bytes(budget)
    if is_cached(dataset):
        return dataset
    folder = tempfile.gettempdir() if spill is True else spill or None
    try:
        try:
            place = find_place(dataset, budget_bytes, policy or "keep", folder, note)
        except Unavailable:
            # Perhaps the room is taken by a cache that nobody here needs any more.
            if not release_unused():
                raise
            place = find_place(dataset, budget_bytes, policy or "keep", folder, note)
        return CachedDataset(dataset, place, note)
    except Exception as error:
        why = error.why if isinstance(error, Unavailable) else error_text(error)
        note(message("cache.not_cached", dataset=type(dataset).__name__, why=why))
    return dataset


class CachedDataset(data.Dataset[Any]):
    """Stands in for the wrapped dataset: same samples, same length, same attributes, same class to isinstance."""

    # Read at every hit: a slot is found sooner than a key of __dict__.
    __slots__ = ("_flatout_hot",)

    def __init__(self, dataset: Any, place: Place, note: Note) -> None:
        own = self.__dict__
        own["_flatout_dataset"] = dataset
        own["_flatout_place"] = place
        own["_flatout_note"] = note
        own["_flatout_state"] = State(dataset)
        own["_flatout_generators"] = OwnGenerators(dataset)
        own["_flatout_reader"] = Reader(dataset, place.cut) if place.cut is not None else None
        own["_flatout_table"] = table = open_table(place)
        # All that a hit needs, in one place. Without a table no index is in range.
        object.__setattr__(
            self, "_flatout_hot", (table.samples, table.get, own["_flatout_reader"], dataset, own["_flatout_state"])
        )
        table.users.add(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # A loader asks this when an epoch begins: a script may have changed the dataset before.
        self.__dict__["_flatout_state"].due_s = 0.0
        return type(self.__dict__["_flatout_dataset"])

    def __len__(self) -> int:
        return len(self.__dict__["_flatout_dataset"])

    def __getitem__(self, index: Any) -> Any:
        samples, get, reader, dataset, state = self._flatout_hot
        if type(index) is not int or not 0 <= index < samples:
            return dataset[index]
        try:
            # As state.holds() does it, without a call.
            is_same = state.values_of(state.where) == state.values
            if monotonic() > state.due_s:
                is_same = is_same and state.contents_hold()
            sample = get(index) if is_same else _STALE
        except Exception as error:
            return self._flatout_stop(_CHANGED if not state.holds() else error_text(error))[index]
        if sample is _STALE:
            return self._flatout_stop(_CHANGED)[index]
        if sample is not MISS:
            return sample if reader is None else reader.finish(sample)
        state.begin()
        began_ns = time.perf_counter_ns()
        if reader is None:
            sample, is_ready = self._flatout_drawing(lambda: dataset[index])
        else:
            sample, is_ready = reader.load(index)
        self._flatout_keep(index, sample, time.perf_counter_ns() - began_ns, is_ready)
        return sample if reader is None or not is_ready else reader.finish(sample)

    def _flatout_drawing(self, load: Callable[[], Any]) -> tuple[Any, bool]:
        """What `load()` gives, and whether it may be kept: not if it drew random numbers."""
        generators = self.__dict__["_flatout_generators"]
        before, own_before = random_states(), generators.states()
        loaded = load()
        return loaded, moved_generator(before) is None and generators.states() == own_before

    def _flatout_get_many(self, indices: list[Any]) -> list[Any]:
        """What torch's loader calls for a batch where the dataset has `__getitems__`."""
        own = self.__dict__
        many = own["_flatout_dataset"].__getitems__
        table = own["_flatout_table"]
        if own["_flatout_reader"] is not None:
            return [self[index] for index in indices]
        if table is None or not all(type(index) is int and 0 <= index < table.samples for index in indices):
            return list(many(indices))
        if not own["_flatout_state"].holds():
            self._flatout_stop(_CHANGED)
            return list(many(indices))
        try:
            found = [table.get(index) for index in indices]
        except Exception as error:
            self._flatout_stop(error_text(error))
            return list(many(indices))
        missing = [at for at, sample in enumerate(found) if sample is MISS]
        if missing:
            own["_flatout_state"].begin()
            began_ns = time.perf_counter_ns()
            loaded, is_ready = self._flatout_drawing(lambda: many([indices[at] for at in missing]))
            each_ns = (time.perf_counter_ns() - began_ns) // len(missing)
            for at, sample in zip(missing, loaded, strict=True):
                found[at] = sample
                self._flatout_keep(indices[at], sample, each_ns, is_ready)
        return found

    def _flatout_keep(self, index: int, sample: Any, load_ns: int, is_ready: bool) -> None:
        own = self.__dict__
        own["_flatout_state"].renew()
        table = own["_flatout_table"]
        if table is None:
            return
        try:
            table.put(index, sample if is_ready else MISS, load_ns)
        except Exception as error:
            self._flatout_stop(error_text(error))

    def _flatout_stop(self, why: Message) -> Any:
        """Read without the cache from now on; returns the dataset. One process of all says so."""
        table, self.__dict__["_flatout_table"] = self.__dict__["_flatout_table"], None
        object.__setattr__(self, "_flatout_hot", (0, None, None, self.__dict__["_flatout_dataset"], None))
        try:
            words = table.segment.words
            if not words[Word.TOLD]:
                words[Word.TOLD] = 1
                self.__dict__["_flatout_note"](message("cache.ended", why=why))
        except ValueError:
            pass  # let go of at the end of the process
        return self.__dict__["_flatout_dataset"]

    def __getattr__(self, name: str) -> Any:
        dataset = self.__dict__["_flatout_dataset"]
        if name == "stats" and not hasattr(dataset, name):
            return lambda: cache_stats(self)
        value = getattr(dataset, name)
        if not name.startswith("__"):
            self.__dict__["_flatout_state"].due_s = 0.0  # it may be written into
        # Only where the dataset has it: loaders ask, and load batches as a whole then.
        return self._flatout_get_many if name == "__getitems__" and value is not None else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_flatout_dataset"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_flatout_dataset"], name)

    def __repr__(self) -> str:
        return f"cached({self.__dict__['_flatout_dataset']!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        own = self.__dict__
        place = own["_flatout_place"] if own["_flatout_table"] is not None else None
        if place is not None and not own["_flatout_state"].holds():
            self._flatout_stop(_CHANGED)
            place = None
        return _restored, (own["_flatout_dataset"], place, own["_flatout_note"])


def _restored(dataset: Any, place: Place | None, note: Note) -> Any:
    """In a process that was not forked: the same cache, found by its name."""
    if place is None:
        return dataset
    try:
        return CachedDataset(dataset, place, note)
    except (Unavailable, NoCut, OSError) as error:
        why = error_text(error) if isinstance(error, OSError) else error.why
        note(message("cache.process_without", pid=os.getpid(), why=why))
        return dataset


def is_cached(dataset: Any) -> bool:
    return type(dataset) is CachedDataset


def cache_stats(dataset: Any) -> CacheStats:
    """Of all processes that share this dataset's cache; `dataset.stats()` unless the dataset has its own."""
    own = dataset.__dict__
    place, table = own["_flatout_place"], own["_flatout_table"]
    name = type(own["_flatout_dataset"]).__name__
    return read_stats(name, place.policy, place.sample_bytes, None if table is None else table.segment)


def uncached(dataset: Any) -> Any:
    """The dataset as it was before `cached`."""
    return dataset.__dict__["_flatout_dataset"] if is_cached(dataset) else dataset


def set_policy(dataset: Any, policy: str) -> None:
    """Change what leaves first, in this process and in those that it starts from now on."""
    own = dataset.__dict__
    own["_flatout_place"] = replace(own["_flatout_place"], policy=policy)
    if own["_flatout_table"] is not None:
        own["_flatout_table"].change_policy(policy)


def foresee(dataset: Any, order: list[int], chances: Any = None) -> None:
    """Tell a cached dataset in which order its samples will be read from now on, in all processes together."""
    own = dataset.__dict__
    if own["_flatout_table"] is not None:
        own["_flatout_table"].foresee(order, own["_flatout_place"].sample_bytes, chances)


# Notices when a script changes a dataset between two reads: what was kept may be out of date then. Before every hit
# it is checked that each attribute is the same object. What these hold (labels that are overwritten, a dictionary of
# settings, a transform's size) and the globals that the dataset reads are compared as often as a hundredth of the
# time allows, and at the first read of every worker.

# What a dataset changes itself shows in its first readings.
_LESSONS = 2
_LEAST_PAUSE_S = 0.02
_PAUSE_TIMES = 100.0
_CLASS = "its class"


class State:
    """The attributes of a dataset and of those it is a subset of."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        names = [name for name, _ in _attributes(dataset)]
        self.where: Any = dataset
        # The class, and below the first name twice: of a single name, no tuple would come.
        self.values_of: Callable[[Any], tuple[Any, ...]] = operator.attrgetter("__class__", *names)
        if names and not isinstance(dataset, data.Subset):
            # All are its own. Looked up there they cost half the time, and this is done at every hit.
            self.where, self.values_of = vars(dataset), operator.itemgetter(names[0], *names)
        self.values = self.values_of(self.where)
        self._lessons = _LESSONS
        self._before: dict[str, str] = {}
        self._its_own: set[str] = set()
        self._contents = self._look()
        _states.add(self)

    def holds(self) -> bool:
        try:
            return bool(self.values_of(self.where) == self.values) and self.contents_hold()
        except Exception:
            return False

    def contents_hold(self) -> bool:
        """Whether what the attributes hold is what it was."""
        return self._look() == self._contents

    def begin(self) -> None:
        """Before the dataset is read."""
        if self._lessons:
            self._before = self._look()

    def renew(self) -> None:
        """After a reading: what the dataset changed by itself (a file it opened, a count) is no one's setting."""
        try:
            self.values = self.values_of(self.where)
        except (AttributeError, KeyError):
            # One that is gone makes `holds` say no from now on.
            pass
        if self._lessons:
            self._lessons -= 1
            now = self._look()
            changed = {name for name in self._before.keys() | now.keys() if self._before.get(name) != now.get(name)}
            self._its_own |= changed
            for name in changed:
                self._contents.pop(name, None)

    def _look(self) -> dict[str, str]:
        began_s = time.monotonic()
        found = {name: contents(value) for name, value in _attributes(self._dataset) if name not in self._its_own}
        if _CLASS not in self._its_own:
            found[_CLASS] = contents(type(self._dataset))
        ended_s = time.monotonic()
        # When it is worth another look.
        self.due_s = ended_s + max(_LEAST_PAUSE_S, _PAUSE_TIMES * (ended_s - began_s))
        return found


def _attributes(dataset: Any) -> Iterator[tuple[str, Any]]:
    prefix = ""
    while True:
        below = isinstance(dataset, data.Subset)
        for name, value in getattr(dataset, "__dict__", {}).items():
            if not (below and name == "dataset"):
                yield prefix + name, value
        if not below:
            return
        dataset, prefix = dataset.dataset, f"{prefix}dataset."


def _forked() -> None:
    for state in _states:
        state.due_s = 0.0


_states: weakref.WeakSet[State] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)


# Put the cache in front of a DataLoader's dataset, with the policy that suits its sampler, and take it away again.


_EPOCHS_AHEAD = 3


def wrap(loader_or_dataset: Any, options: Mapping[str, Any] | None = None, note: Note = write_note) -> Any:
    """Returns what it was given: a loader with its dataset cached, or the dataset, cached. Refusals go to `note`.

    Options: `budget`, `policy` and `spill` as for `cached`. A loader is wrapped right after it was made.
    """
    options = dict(options or {})
    if not isinstance(loader_or_dataset, data.DataLoader):
        return keep_samples(loader_or_dataset, note, **options)
    loader = loader_or_dataset
    sampler = _sampler_of(loader)
    policy = options.pop("policy", None) or choose(sampler)
    dataset = keep_samples(loader.dataset, note, policy=policy, **options)
    if not is_cached(dataset):
        return loader
    if policy == "clairvoyant" and not _watch(sampler, dataset, note):
        policy = "lru"
        set_policy(dataset, policy)
        note(message("cache.order_unknown", sampler=type(sampler).__name__))
    # DataLoader refuses to set its dataset once it is made; nothing in it depends on which object that is.
    loader.__dict__["dataset"] = dataset
    return loader


def unwrap(loader_or_dataset: Any) -> Any:
    """Undo `wrap`: the dataset and the sampler's class are the originals again."""
    if not isinstance(loader_or_dataset, data.DataLoader):
        return uncached(loader_or_dataset)
    loader = loader_or_dataset
    sampler = _sampler_of(loader)
    if "_flatout_publish" in vars(sampler):
        sampler.__class__ = type(sampler).__mro__[1]
        del sampler._flatout_publish
    loader.__dict__["dataset"] = uncached(loader.dataset)
    return loader


def _watched(kind: type) -> type:
    """That sampler, but an epoch is drawn at once, published, and then given out as before."""

    def __iter__(sampler: Any) -> Iterator[Any]:
        # Drawn at the first `next`, when the sampler itself would begin to draw.
        order = list(kind.__iter__(sampler))  # type: ignore[attr-defined]
        sampler._flatout_publish(sampler, order)
        yield from order

    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__iter__": __iter__})


def _sampler_of(loader: Any) -> Any:
    return innermost(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)


def _watch(sampler: Any, dataset: Any, note: Note) -> bool:
    """Have the sampler publish its order. The object stays the same, and of its own class to isinstance."""
    kind = type(sampler)
    # Only those that draw an epoch from one generator, at its beginning: drawing it at once changes nothing.
    is_shared = kind is data.DistributedSampler
    if not is_shared and kind not in (data.WeightedRandomSampler, data.RandomSampler):
        return False

    def publish(sampler: Any, order: list[int]) -> None:
        try:
            foreseen = _host_order(sampler) if is_shared else order
            if foreseen is not None:
                foresee(dataset, foreseen, _chances(sampler))
        except Exception as error:
            note(message("cache.epoch_unknown", error=error_text(error)))

    sampler._flatout_publish = publish
    sampler.__class__ = _watched(kind)
    return True


def _chances(sampler: Any) -> Any:
    weights = getattr(sampler, "weights", None)
    return None if weights is None else weights.detach().cpu().numpy()


def _host_order(sampler: Any) -> list[int] | None:
    """What all ranks of this host read in this epoch and the next ones; told by the first of them."""
    if int(os.environ.get("LOCAL_RANK", "0")) != 0:
        return None
    here = range(sampler.rank, sampler.rank + ranks_here())
    foreseen: list[int] = []
    for epoch in range(sampler.epoch, sampler.epoch + _EPOCHS_AHEAD):
        orders = [_order_of(sampler, rank, epoch) for rank in here]
        foreseen += [index for indices in zip(*orders, strict=True) for index in indices]
    return foreseen


def _order_of(sampler: Any, rank: int, epoch: int) -> list[int]:
    twin = copy.copy(sampler)
    twin.rank, twin.epoch = rank, epoch
    return list(data.DistributedSampler.__iter__(twin))
