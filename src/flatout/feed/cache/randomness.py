"""Does a dataset give the same sample every time? Only then may a sample be kept.

The same index is read twice under different states of the three generators a dataset commonly draws from. A dataset
that draws at all, from these or from one of its own, is refused even if the sample stays the same: another time it may
not, and not drawing would change what others draw after it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import random
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data as data

from ...records.message import Message, message
from ..reasons import Reasoned
from ..seeding import moved_generator, random_states, seed_all, set_random_states
from .format import NotFlat, encode
from .key import globals_of, is_of_library, settings_of

_SEEDS = (20_011, 911_003)


@dataclass(frozen=True, slots=True)
class Determinism:
    """Whether samples are the same every time."""

    why_not: Message | None
    first_s: float = 0.0  # the least that reading a sample for the first time took


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Other states of torch's, numpy's and Python's generators; the ones before are put back."""
    before = random_states()
    seed_all(seed)
    try:
        yield
    finally:
        set_random_states(before)


def is_deterministic(dataset: Any, indices: Sequence[int]) -> Determinism:
    """Read each index twice and compare; the generators' states are as before afterwards."""
    first_s, generators = math.inf, OwnGenerators(dataset)
    for index in indices:
        seen: list[Any] = []
        for seed in _SEEDS:
            with seeded(seed):
                before, own_before = random_states(), generators.states()
                began_s = time.perf_counter()
                sample = dataset[index]
                first_s = first_s if seen else min(first_s, time.perf_counter() - began_s)
                drawn_from = moved_generator(before)
                if drawn_from is None and generators.states() != own_before:
                    drawn_from = message("cache.of_its_own")
            if drawn_from is not None:
                return Determinism(message("cache.draws", index=index, whose=drawn_from))
            try:
                encode(sample)
            except NotFlat as error:
                return Determinism(message("cache.sample_not_flat", index=index, why=error.why))
            # The next reading may well write into the same memory.
            seen.append(copy.deepcopy(sample))
        if not alike(seen[0], seen[1]):
            return Determinism(message("cache.sample_differs", index=index))
    return Determinism(None, first_s)


def alike(first: Any, second: Any) -> bool:
    """The same types, shapes and bytes all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(alike(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, dict):
        return list(first) == list(second) and all(alike(first[key], second[key]) for key in first)
    if callable(getattr(first, "tobytes", None)) and hasattr(first, "size"):
        # Arrays, numpy's scalars, and images.
        facts = [(a.size, *(str(getattr(a, name, "")) for name in ("mode", "dtype", "shape"))) for a in (first, second)]
        return facts[0] == facts[1] and bool(first.tobytes() == second.tobytes())
    try:
        a, b = encode(first), encode(second)
    except NotFlat:
        return False
    return a.nbytes == b.nbytes and all(bytes(x) == bytes(y) for x, y in zip(a.parts, b.parts, strict=True))


# Random generators that a dataset holds itself, in its attributes and transforms. A sample that is flipped every
# other time looks the same in one of two reads; the generator has moved in both.

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
_DEEPEST = 6
_MOST_PARTS = 200


class OwnGenerators:
    def __init__(self, dataset: Any) -> None:
        self._found = list({id(item): item for item in _find_generators(dataset, _DEEPEST, set())}.values())

    def states(self) -> list[bytes]:
        return [
            bytes(item.get_state().numpy()) if isinstance(item, torch.Generator) else pickle.dumps(item)
            for item in self._found
        ]


def _find_generators(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, _KINDS):
        yield value
    if not depth or id(value) in seen or isinstance(value, (int, str, bytes, torch.Tensor, np.ndarray)):
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _find_generators(part, depth - 1, seen)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value[:_MOST_PARTS]
    elif isinstance(value, dict):
        yield from list(value.values())[:_MOST_PARTS]
    elif isinstance(value, types.FunctionType):
        yield from (item for _, item in globals_of(value.__code__, value.__globals__))
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType())
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        yield from list(vars(value).values())[:_MOST_PARTS]
        for kind in type(value).__mro__:
            if not is_of_library(sys.modules.get(kind.__module__)):
                yield from (item for _, item in settings_of(kind))


# Keep what comes before the first random transform, and apply the rest at every reading.
#
# Possible where the dataset holds its transforms as a list (`dataset.transform.transforms`) and puts what they return
# into the sample untouched. Whether it does is looked at for every sample that is loaded, not assumed: the very object
# that the kept transforms returned must stand at the same place of the sample. Where it does not, it is not kept.


_SEED = 5_003
# torchvision keeps the transform a second time, in an object that transforms sample and target together.
_HOLDERS = ("", "transforms")
Path = tuple[Any, ...]


class NoCut(Reasoned):
    """There is no place to cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to cut: after the first `kept` transforms; their result stands at `path` in the sample.

    `holder` names the attribute of the dataset that has the transform, or is empty where the dataset has it itself.
    """

    holder: str
    kept: int
    path: Path


class Reader:
    """Loads samples up to the cut and finishes them."""

    def __init__(self, dataset: Any, cut: Cut) -> None:
        self._dataset = dataset
        self._cut = cut
        self._owner = transform_owner(dataset, cut.holder)
        compose = self._owner.transform
        # The dataset is changed for the length of a load: threads take turns.
        self._turn = threading.Lock()
        self._compose = compose
        self._first = _part(compose, compose.transforms[: cut.kept])
        self._rest = _part(compose, compose.transforms[cut.kept :])

    def is_current(self) -> bool:
        """Has the dataset still the transforms it had?"""
        return self._owner.transform is self._compose

    def load(self, index: int) -> tuple[Any, bool]:
        """The sample as it is at the cut and True; or, where it cannot be cut, the whole sample and False."""
        states = random_states()
        recorder = _Recorder(self._first)
        with self._turn:
            self._owner.transform = recorder
            try:
                sample = self._dataset[index]
            finally:
                self._owner.transform = self._compose
        is_at_cut = recorder.calls == 1 and places_of(recorder.returned, sample) == [self._cut.path]
        if is_at_cut and moved_generator(states) is None:
            return sample, True
        set_random_states(states)
        return self._dataset[index], False

    def finish(self, sample: Any) -> Any:
        """Apply the rest of the transforms where they belong."""
        return _replaced(sample, self._cut.path, self._rest)


class _Recorder:
    """Stands in for the dataset's transform and remembers what it returned."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self.calls = 0
        self.returned: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.returned = self._transform(*args, **kwargs)
        return self.returned


def find_cut(dataset: Any, indices: Sequence[int]) -> Cut:
    """Raises NoCut where the kept part and the rest would not make the same samples."""
    reasons = []
    for holder in _HOLDERS:
        try:
            return _cut_at(dataset, holder, indices)
        except NoCut as reason:
            reasons.append(reason)
    raise reasons[0]


def _cut_at(dataset: Any, holder: str, indices: Sequence[int]) -> Cut:
    owner = transform_owner(dataset, holder)
    compose = owner.transform
    kept = min(_first_random(dataset, owner, compose, index) for index in indices)
    if kept >= len(compose.transforms):
        raise NoCut(message("cache.no_random_transform"))
    cut = Cut(holder, kept, _path(dataset, owner, compose, kept, indices[0]))
    reader = Reader(dataset, cut)
    verdict = is_deterministic(_UpToCut(reader), indices)
    if verdict.why_not is not None:
        raise NoCut(message("cache.random_besides", why=verdict.why_not))
    for index in indices:
        _must_be_same(dataset, reader, index)
    return cut


def transform_owner(dataset: Any, holder: str = "") -> Any:
    """The object whose `transform` is a list of transforms: the dataset below any Subset of it, or what it holds."""
    owner = dataset
    while isinstance(owner, data.Subset):
        owner = owner.dataset
    if holder:
        owner = getattr(owner, holder, None)
    transforms = getattr(getattr(owner, "transform", None), "transforms", None)
    if not isinstance(transforms, (list, tuple)) or not transforms or "transform" not in vars(owner):
        raise NoCut(message("cache.no_transforms", kind=type(owner).__name__))
    return owner


def places_of(wanted: Any, sample: Any, path: Path = ()) -> list[Path]:
    """Where in `sample` the very object `wanted` stands."""
    if sample is wanted:
        return [path]
    if type(sample) in (tuple, list):
        return [place for at, item in enumerate(sample) for place in places_of(wanted, item, (*path, at))]
    if type(sample) is dict:
        return [place for key, item in sample.items() for place in places_of(wanted, item, (*path, key))]
    return []


class _UpToCut:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __getitem__(self, index: int) -> Any:
        return self._reader.load(index)[0]


def _part(compose: Any, transforms: Sequence[Any]) -> Any:
    """The same kind of list, with some of its transforms: only it knows how it calls them."""
    part = copy.copy(compose)
    part.transforms = type(compose.transforms)(transforms)
    return part


def _first_random(dataset: Any, owner: Any, compose: Any, index: int) -> int:
    """How many transforms come before the first that draws."""
    for kept in range(len(compose.transforms)):
        owner.transform = _part(compose, compose.transforms[: kept + 1])
        try:
            verdict: Determinism = is_deterministic(dataset, [index])
        finally:
            owner.transform = compose
        if verdict.why_not is not None:
            return kept
    return len(compose.transforms)


def _path(dataset: Any, owner: Any, compose: Any, kept: int, index: int) -> Path:
    recorder = _Recorder(_part(compose, compose.transforms[:kept]))
    owner.transform = recorder
    try:
        with seeded(_SEED):
            sample = dataset[index]
    finally:
        owner.transform = compose
    places = places_of(recorder.returned, sample)
    if recorder.calls != 1 or len(places) != 1:
        raise NoCut(message("cache.transform_calls", kind=type(owner).__name__, calls=recorder.calls))
    return places[0]


def _must_be_same(dataset: Any, reader: Reader, index: int) -> None:
    with seeded(_SEED):
        whole, after = dataset[index], random_states()
    with seeded(_SEED):
        sample, was_cut = reader.load(index)
        joined = reader.finish(sample) if was_cut else None
        moved = moved_generator(after)
    if not was_cut or moved is not None or not alike(whole, joined):
        raise NoCut(message("cache.parts_differ", index=index))


def _replaced(sample: Any, path: Path, transform: Any) -> Any:
    if not path:
        return transform(sample)
    at, rest = path[0], path[1:]
    if type(sample) is tuple:
        return (*sample[:at], _replaced(sample[at], rest, transform), *sample[at + 1 :])
    sample[at] = _replaced(sample[at], rest, transform)
    return sample
