"""Keep what comes before the first random transform, and apply the rest at every reading.

Possible where the dataset holds its transforms as a list (`dataset.transform.transforms`) and puts what they return
into the sample untouched. Whether it does is looked at for every sample that is loaded, not assumed: the very object
that the kept transforms returned must stand at the same place of the sample. Where it does not, it is not kept.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.utils.data as data

from ...records.message import message
from ..reasons import Reasoned
from ..seeding import moved_generator, random_states, set_random_states
from .randomness import Determinism, alike, is_deterministic, seeded

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
