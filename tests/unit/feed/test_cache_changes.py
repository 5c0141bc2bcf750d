"""A dataset that the script changes while its samples are kept, and one that is random only now and then."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache.dataset import cached, is_cached
from flatout.feed.cache.randomness import alike
from tests.unit.feed.keeping import Squares, folder, kept, notes

__all__ = ["folder", "notes"]  # fixtures
_CHANGED = "the cache is no longer used: the dataset was changed while it was in use"
SETTINGS = {"offset": 0}


class Labelled(Squares):
    def __init__(self) -> None:
        super().__init__()
        self.labels = np.arange(30)
        self.targets = torch.arange(30)
        self.names = [f"sample {index}" for index in range(30)]
        self.settings = {"scales": [1, 2]}

    def __getitem__(self, index: int) -> Any:
        values, _ = super().__getitem__(index)
        offset = self.settings["scales"][0] + SETTINGS["offset"]
        return values + offset, int(self.labels[index]), int(self.targets[index]), self.names[index]


def _replace_labels(dataset: Any) -> None:
    dataset.labels = dataset.labels + 1


def _relabel(dataset: Any) -> None:
    dataset.labels[7] = 100


def _retarget(dataset: Any) -> None:
    dataset.targets[7] = 100


def _rename(dataset: Any) -> None:
    dataset.names[7] = "the other one"


def _set_deep_down(dataset: Any) -> None:
    dataset.settings["scales"][0] = 5


def _set_global(dataset: Any) -> None:
    SETTINGS["offset"] += 1


_CHANGES = pytest.mark.parametrize(
    "change", [_replace_labels, _relabel, _retarget, _rename, _set_deep_down, _set_global]
)


@_CHANGES
@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_after_a_change_has_none_of_the_old_samples(
    change: Callable[[Any], None], workers: int, notes: list[str]
) -> None:
    dataset = Labelled()
    loader = data.DataLoader(kept(dataset, notes), batch_size=10, num_workers=workers, collate_fn=list)
    for _ in range(2):
        list(loader)

    change(dataset)

    assert alike([sample for batch in loader for sample in batch], [dataset[index] for index in range(30)])
    assert notes == [_CHANGED] or workers  # a worker tells what it has to tell by itself


@_CHANGES
def test_a_change_goes_along_to_a_process_that_gets_the_dataset_pickled(
    change: Callable[[Any], None], notes: list[str]
) -> None:
    wrapped = cached(Labelled(), "8MB", note=_ignore)
    assert is_cached(wrapped)
    wrapped[7]

    change(wrapped)

    assert alike(pickle.loads(pickle.dumps(wrapped))[7], wrapped[7])


def _ignore(words: str) -> None: ...


def test_what_a_dataset_writes_into_itself_is_no_change(notes: list[str]) -> None:
    class Counting(Labelled):
        def __getitem__(self, index: int) -> Any:
            self.settings["last"] = [index]
            return super().__getitem__(index)

    wrapped = kept(Counting(), notes)

    for _ in range(3):
        list(data.DataLoader(wrapped, batch_size=10, collate_fn=list))

    assert wrapped.stats().hits == 60 and not notes


class OneBuffer(Squares):
    """Every sample is the same memory, and another generator than the usual ones fills it."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = torch.zeros(50)
        self.draw: Callable[[], float] = _Hidden().random

    def __getitem__(self, index: int) -> Any:
        self.buffer.fill_(self.draw())
        return self.buffer


class _Hidden:
    """Random, by no generator that could be looked at."""

    def __init__(self) -> None:
        self._calls = 0

    def random(self) -> float:
        self._calls += 1
        return 1 / self._calls


def test_a_buffer_that_is_filled_again_is_no_proof_of_sameness(notes: list[str]) -> None:
    dataset = OneBuffer()

    assert cached(dataset, "8MB", note=notes.append) is dataset
    assert "differs between two readings" in notes[0]


_rng = random.Random(3)


class Flips(Squares):
    """The sample seldom changes; the generator always does."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.transform = {"chance": generator}

    def __getitem__(self, index: int) -> Any:
        chance = self.transform["chance"]
        drawn = torch.rand(1, generator=chance) if isinstance(chance, torch.Generator) else chance.random()
        return super().__getitem__(index)[0] * (1 if drawn > 1e-9 else 2)


class FlipsByGlobal(Squares):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0] * (1 if _rng.random() > 1e-9 else 2)


@pytest.mark.parametrize(
    "dataset",
    [
        Flips(np.random.default_rng(0)),
        Flips(np.random.RandomState(0)),
        Flips(random.Random(0)),
        Flips(torch.Generator()),
        FlipsByGlobal(),
    ],
    ids=["numpy", "numpy's old one", "Python's", "torch's", "global"],
)
def test_a_generator_of_its_own_is_seen_to_be_drawn_from(dataset: Any, notes: list[str]) -> None:
    assert cached(dataset, "8MB", note=notes.append) is dataset
    assert "draws from its own random generator" in notes[0]


class Batches(Squares):
    """Noise for a few of the samples, none of which is looked at beforehand."""

    def __getitem__(self, index: int) -> Any:
        values, _ = super().__getitem__(index)
        return values + torch.rand(1) if index in (5, 6) else values


class WholeBatches(Batches):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("kind", [Batches, WholeBatches])
def test_samples_that_draw_random_numbers_are_not_kept_while_the_others_are(
    kind: type[Squares], notes: list[str]
) -> None:
    torch.manual_seed(0)
    plain = [list(data.DataLoader(kind(), batch_size=5)) for _ in range(3)]
    wrapped = kept(kind(), notes)

    torch.manual_seed(0)
    read = [list(data.DataLoader(wrapped, batch_size=5)) for _ in range(3)]

    assert alike(read, plain)
    assert wrapped.stats().hits >= 40


def test_a_tensor_with_attributes_is_not_kept_without_them(notes: list[str]) -> None:
    class Tagged(Squares):
        def __getitem__(self, index: int) -> Any:
            values, name = super().__getitem__(index)
            values.name_of_file = name
            return values

    dataset = Tagged()

    assert cached(dataset, "8MB", note=notes.append) is dataset
    assert "attributes of its own" in notes[0]
