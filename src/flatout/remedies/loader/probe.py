"""A first look at a loader: do samples draw random numbers, are they the same when read again, how long do they take?

A child process reads a few samples, as a worker would. The training process itself reads nothing twice and draws
nothing.
"""

from __future__ import annotations

import copy
import dis
import itertools
import os
import pickle
import statistics
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from ...records.message import Message, message
from ..user_code import inner_codes

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


def probe_dataset(dataset: Any, batching: Batching | None = None) -> LoaderProbe:
    """At the first few samples, for a few seconds at most."""
    if not hasattr(dataset, "__getitem__") or not hasattr(os, "fork"):
        return LoaderProbe()
    from ...feed.cache.dataset import uncached
    from ...feed.forked import ask_child

    dataset = uncached(dataset)  # what is kept is quick to read again; the first epoch is not
    try:
        seen = ask_child(lambda: ChildProbe(dataset, batching or Batching()).seen(), _LIMIT_S)
    except TimeoutError:
        seen = None
    return seen or LoaderProbe()


# Each dataset is probed once: scripts make a loader again over the same data.


class LoaderProbes:
    """What was seen, by the dataset and what makes batches of it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, object, object], tuple[Callable[[], Any], LoaderProbe]] = {}

    def at(self, loader: Any) -> LoaderProbe:
        """Nothing is seen of a stream: what a look takes from it may be gone."""
        dataset = loader.dataset
        if is_stream(loader):
            return LoaderProbe()
        batching = Batching.of(loader)
        # By the code: scripts define the same function again and again.
        collate_key = getattr(batching.collate_fn, "__code__", type(batching.collate_fn))
        key = (id(dataset), collate_key, type(batching.sampler))
        known = self._known.get(key)
        if known is not None and known[0]() is dataset:
            return known[1]
        seen = probe_dataset(dataset, batching)
        try:
            self._known[key] = (weakref.ref(dataset), seen)
        except TypeError:
            pass  # a plain list
        return seen


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
        own = getattr(getattr(kind, name, None), "__code__", None)
        for code in [own, *inner_codes(own)] if isinstance(own, CodeType) else ():
            yield name, code
            more = [called for called in code.co_names if isinstance(getattr(kind, called, None), FunctionType)]
            waiting += [called for called in more if called not in seen]
            seen.update(more)


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


# What is seen of a dataset, its sampler and its collate function by using them, in a child process that then ends.

_ENOUGH_S = 0.3
_SAMPLES = 4
# Entries of a sampler, and the seconds they may take.
_ENTRIES = 64
_ORDER_S = 0.5
_LONGEST_NAME = 64


class ChildProbe:
    """One look."""

    def __init__(self, dataset: Any, batching: Batching) -> None:
        self._dataset = dataset
        self._batching = batching

    def seen(self) -> LoaderProbe:
        indices, order_draws = self._order()
        first, first_s, drew = self._read(indices[0])
        # The first reading of all also opens what is opened once; the second is timed.
        again, again_s, _ = self._read(indices[0])
        same = _alike(first, again)
        before = _attributes(self._dataset)
        times_s, samples = [again_s], [again]
        changes = None
        if first_s + again_s < _ENOUGH_S:
            _, took_s, _ = self._read(indices[0])
            times_s.append(took_s)
            changes = _first_difference(before, _attributes(self._dataset))
        for index in indices[1:]:
            if first_s + sum(times_s) > _ENOUGH_S:
                break
            sample, took_s, drew_too = self._read(index)
            samples.append(sample)
            times_s.append(took_s)
            drew = drew or drew_too
        collate_draws, collates_same = self._collating(samples)
        median_s = statistics.median(times_s)
        return LoaderProbe(drew, same, median_s, collate_draws, collates_same, changes, order_draws)

    def _read(self, index: Any) -> tuple[Any, float, bool]:
        """A sample read from the same random state, the seconds it took, and whether it has drawn."""
        together = getattr(self._dataset, "__getitems__", None) if self._batching.is_batched else None
        return self._watched(lambda: together([index])[0] if together else self._dataset[index])

    def _watched(self, call: Callable[[], Any]) -> tuple[Any, float, bool]:
        """What it gives from the same random state each time, the seconds it takes, and whether it has moved that."""
        from ...feed.seeding import random_states, seed_all

        seed_all(0)
        before = random_states()
        began_s = time.perf_counter()
        result = call()
        took_s = time.perf_counter() - began_s
        return result, took_s, before != random_states()

    # The order of the samples

    def _order(self) -> tuple[list[Any], bool | None]:
        """The first indices, and whether its sampler draws or counts as it goes."""
        if self._batching.sampler is None:
            length = len(self._dataset) if hasattr(self._dataset, "__len__") else 1
            return list(range(max(1, min(_SAMPLES, length)))), False
        try:
            return self._through_sampler(self._batching.sampler)
        except Exception:
            return [0], None

    def _through_sampler(self, sampler: Any) -> tuple[list[Any], bool]:
        from ...feed.seeding import random_states

        began_s = time.perf_counter()
        entries = iter(sampler)
        first = next(entries)
        before = random_states(), _state_of(sampler)
        for _ in itertools.islice(entries, _ENTRIES):
            if time.perf_counter() - began_s > _ORDER_S:
                break
        drew = before != (random_states(), _state_of(sampler))
        return list(first)[:_SAMPLES] if self._batching.is_batched else [first], drew

    # Batches

    def _collating(self, samples: list[Any]) -> tuple[bool | None, bool | None]:
        """Whether putting a batch together draws, and whether it gives the same again."""
        collate = self._batching.collate_fn
        if collate is None:
            return False, True
        try:
            given = samples if self._batching.is_batched else samples[0]
            again = copy.deepcopy(given)  # it may change what it gets
            batch, _, drew = self._watched(lambda: collate(given))
            same_batch, _, _ = self._watched(lambda: collate(again))
        except Exception:
            return None, None  # one that needs other samples, or more of them
        return drew, _alike(batch, same_batch)


def _state_of(sampler: Any) -> list[object]:
    """Of a sampler and those inside it: numbers and texts, and where the generators that it holds stand."""
    found: list[object] = []
    for item in _with_inner(sampler):
        found.append(fingerprint(item))
        found.extend(_generator_state(value) for value in vars(item).values())
    return found


def _with_inner(sampler: Any) -> Iterator[Any]:
    for _ in range(4):
        if not hasattr(sampler, "__dict__"):
            return
        yield sampler
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner


def _generator_state(value: Any) -> object:
    """Of torch's, Python's and numpy's kinds of generator; None for all else."""
    if callable(getattr(value, "initial_seed", None)) and callable(getattr(value, "get_state", None)):
        return bytes(value.get_state().numpy().tobytes())
    if callable(getattr(value, "getstate", None)):
        return repr(value.getstate())
    bits = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None)
    return repr(bits.state) if bits is not None else None


def _attributes(dataset: Any) -> dict[str, list[object]]:
    own = getattr(dataset, "__dict__", None)
    return {name: fingerprint(value) for name, value in own.items()} if isinstance(own, dict) else {}


def _first_difference(before: dict[str, list[object]], after: dict[str, list[object]]) -> str | None:
    changed = [name for name in after if before.get(name) != after[name]]
    return changed[0][:_LONGEST_NAME] if changed else None


def _alike(first: Any, second: Any) -> bool | None:
    """None where they cannot be compared."""
    from ...feed.cache.randomness import alike

    try:
        return alike(first, second) or pickle.dumps(first) == pickle.dumps(second)
    except Exception:
        return None


# Has the script changed a dataset? Numbers and texts are compared, other objects by what they are made of.

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 4
_MOST_ITEMS = 32
_MOST_VALUES = 512
_LONGEST_TEXT = 256


def fingerprint(value: Any) -> list[object]:
    """Equal as long as nothing was set that an epoch's workers would see. What is deep inside is not looked at."""
    found: list[object] = []
    _walk(value, _DEEPEST, found)
    return found


def _walk(value: Any, depth: int, found: list[object]) -> None:
    if len(found) >= _MOST_VALUES:
        return
    if isinstance(value, _PLAIN):
        found.append(value[:_LONGEST_TEXT] if isinstance(value, str | bytes) else value)
        return
    length = len(value) if isinstance(value, dict | list | tuple | set | bytearray) else None
    # A tensor counts what was written into it.
    found.append((id(value), getattr(value, "_version", None), length))
    if depth == 0:
        return
    if isinstance(value, dict):
        items: list[Any] = list(value.values())
    elif isinstance(value, list | tuple):
        items = list(value[:_MOST_ITEMS])
    else:
        own = getattr(value, "__dict__", None)
        items = list(own.values()) if isinstance(own, dict) and not callable(own) else []
    for item in items[:_MOST_ITEMS]:
        _walk(item, depth - 1, found)


# What a loader makes batches with.


@dataclass(frozen=True, slots=True)
class Batching:
    """What makes batches of a dataset's samples. None: as torch does."""

    collate_fn: Any = None
    sampler: Any = None
    is_batched: bool = True  # the sampler gives the indices of a batch, the collate function gets a list

    @classmethod
    def of(cls, loader: Any) -> Batching:
        collate_fn, sampler = loader.collate_fn, loader._index_sampler
        return cls(
            None if collates_as_torch(collate_fn) else collate_fn,
            None if draws_at_once(sampler) else sampler,
            loader._auto_collation,
        )


# Torch's own samplers and collate functions are known and need no probe.


def collates_as_torch(collate_fn: Any) -> bool:
    from torch.utils.data._utils import collate

    return collate_fn is collate.default_collate or collate_fn is collate.default_convert


def draws_at_once(sampler: Any) -> bool:
    """Whether it is one of torch's that draw an epoch when it begins, and give numbers from 0 on."""
    sampler = _inner_sampler(sampler)
    kind = _torch_class_name(sampler)
    if kind == "RandomSampler":
        # With a generator that it was given, draws with replacement are made as it goes.
        return not sampler.replacement or sampler.generator is None
    return kind in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler")


def may_draw_at_end(sampler: Any) -> bool:
    """Whether it may draw when its last entries are asked for: torch's does so from a generator that it was given."""
    sampler = _inner_sampler(sampler)
    kind = _torch_class_name(sampler)
    if kind == "RandomSampler":
        return sampler.generator is not None
    return kind not in ("SequentialSampler", "DistributedSampler", "WeightedRandomSampler", "SubsetRandomSampler")


def _inner_sampler(sampler: Any) -> Any:
    return sampler.sampler if _torch_class_name(sampler) == "BatchSampler" else sampler


def _torch_class_name(sampler: Any) -> str | None:
    """The name of torch's own class, None for all others."""
    # The cache of samples has one made a kind of its own, to know the order.
    kind = type(sampler).__mro__[1] if "_flatout_publish" in getattr(sampler, "__dict__", {}) else type(sampler)
    return kind.__name__ if kind.__module__.startswith("torch.utils.data.") else None
