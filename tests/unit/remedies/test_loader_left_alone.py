"""Loaders whose batches would be others with workers, or with workers that live on: left alone, or told of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, default_collate, get_worker_info

from flatout.remedies.loader.probe import Batching, probe_dataset, why_not_repeatable
from flatout.words import english
from tests.unit.remedies.applied import applied
from tests.unit.remedies.going_through import (
    ALL,
    AUTO,
    BATCH,
    LIVING_ON,
    SAMPLES,
    TWO,
    Mine,
    Numbers,
    batch_of,
    gone_through,
    whole,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Counting(Numbers):
    """Says something else every time."""

    def __init__(self) -> None:
        self.calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return index, torch.full((2,), float(self.calls))


class CountingOnly(Counting):
    """Counts, and says the same."""

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return index, torch.full((2,), float(index))


class Keeping(Numbers):
    """Opens a file once and keeps what it has read, as many do."""

    def __init__(self) -> None:
        self.file: Any = None
        self.kept: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        self.file = self.file or object()
        return self.kept.setdefault(index, super().__getitem__(index))


class OwnGenerator(Numbers):
    def __init__(self) -> None:
        self.random = numpy.random.default_rng(1)

    def __getitem__(self, index: int) -> Any:
        return index, torch.full((2,), float(self.random.random()))


class Shared(IterableDataset[Any]):
    """A stream that each worker takes its share of."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for index in range(info.id if info else 0, SAMPLES, info.num_workers if info else 1):
            yield index, torch.full((2,), float(index))


class GoingOn(Shared):
    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self._count()
        for index, values in super().__iter__():
            yield index, values + self.passes

    def _count(self) -> None:
        self.passes += 1


class FromIterator(Shared):
    def __init__(self) -> None:
        self.source = iter(range(9))


class AtOnce:
    """A batch sampler that draws when its iterator is made."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter(torch.randperm(SAMPLES).view(-1, 2).tolist())

    def __len__(self) -> int:
        return SAMPLES // 2


class AsItGoes:
    """One that draws with every entry."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(SAMPLES):
            yield int(torch.randint(SAMPLES, ()))

    def __len__(self) -> int:
        return SAMPLES


class WithOwnGenerator:
    """And one that does so from a generator of its own, which goes on from epoch to epoch."""

    def __init__(self) -> None:
        self.random = numpy.random.default_rng(4)

    def __iter__(self) -> Iterator[int]:
        return (int(self.random.integers(SAMPLES)) for _ in range(SAMPLES))

    def __len__(self) -> int:
        return SAMPLES


def noisy(samples: list[Any]) -> Any:
    indices, values = default_collate(samples)
    return indices, values + torch.randn(())


class Numbering:
    """A collate function that counts its batches."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, samples: list[Any]) -> Any:
        self.batches += 1
        indices, values = default_collate(samples)
        return indices, values + self.batches


@pytest.fixture(autouse=True)
def worth_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However cheap the samples of these tests are."""
    monkeypatch.setattr("flatout.remedies.loader.workers._CHEAP_BATCH_S", 0.0)


def left_early(loader: Any) -> list[Any]:
    return [[batch_of(batch) for batch, _ in zip(loader, range(taken))] for taken in (3, 5, 99)]  # noqa: B905


def said_of(told: dict[str, object]) -> str:
    return " ".join(str(value) for value in told.values())


@pytest.mark.parametrize("profile", [TWO, AUTO, ALL], ids=str)
@pytest.mark.parametrize("dataset", [Counting, OwnGenerator])
def test_samples_that_depend_on_what_was_read_before_get_no_workers(dataset: Any, profile: dict[str, Any]) -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(dataset(), BATCH, shuffle=True)

    assert gone_through(whole, profile, make, told) == gone_through(whole, {}, make)
    assert "left alone: a sample read again is another one" in said_of(told)


def test_a_collate_function_that_counts_gets_no_workers() -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(Numbers(), BATCH, collate_fn=Numbering())

    assert gone_through(whole, TWO, make, told) == gone_through(whole, {}, make)
    assert "left alone: the same samples collated again are others" in said_of(told)


@pytest.mark.parametrize("profile", [TWO, AUTO], ids=str)
def test_a_collate_function_that_draws_is_told_of(profile: dict[str, Any]) -> None:
    told: dict[str, object] = {}

    gone_through(whole, profile, lambda: DataLoader(Numbers(), BATCH, collate_fn=noisy), told)

    assert str(told["randomness"]).startswith("not the same random numbers")
    assert str(told["randomness"]).endswith(": the collate function draws them")


def test_a_collate_function_that_fails_on_a_few_samples_is_told_of() -> None:
    def picky(samples: list[Any]) -> Any:
        assert len(samples) == 11
        return default_collate(samples)

    told: dict[str, object] = {}
    gone_through(whole, TWO, lambda: DataLoader(Numbers(), 11, collate_fn=picky), told)

    assert told["randomness"] == "samples draw no random numbers; the collate function could not be looked at"


def test_a_dataset_that_counts_and_says_the_same_is_told_of() -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(CountingOnly(), BATCH, shuffle=True)

    assert gone_through(whole, TWO, make, told) == gone_through(whole, {}, make)
    assert told["dataset"] == "CountingOnly.calls changes as samples are read: each worker has its own"
    assert told["randomness"] == "samples draw no random numbers"


@pytest.mark.parametrize("profile", [TWO, AUTO], ids=str)
def test_a_stream_that_is_shared_out_is_told_of(profile: dict[str, Any]) -> None:
    told: dict[str, object] = {}

    gone_through(lambda loader: [batch_of(batch) for batch in loader], profile, lambda: DataLoader(Shared(), 4), told)

    assert told["order"] == "not the same batches: the dataset shares its samples out among its workers"
    assert told["randomness"] == "not known: a stream is not read to find out whether it draws random numbers"


@pytest.mark.parametrize("kind", [DataLoader, Mine])
@pytest.mark.parametrize("profile", [TWO, AUTO], ids=str)
def test_a_sampler_that_draws_when_it_is_asked_draws_once(kind: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return kind(Numbers(), batch_sampler=AtOnce())

    assert gone_through(whole, profile, make) == gone_through(whole, {}, make)


def test_workers_that_live_on_have_it_asked_as_often_as_new_ones() -> None:
    def make() -> Any:
        return DataLoader(Numbers(), batch_sampler=AtOnce(), num_workers=1)

    assert gone_through(whole, LIVING_ON, make) == gone_through(whole, {}, make)


@pytest.mark.parametrize("sampler", [AsItGoes, WithOwnGenerator])
def test_a_sampler_that_draws_with_every_batch_gets_no_workers(sampler: Any) -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(Numbers(), BATCH, sampler=sampler())

    assert gone_through(left_early, AUTO, make, told) == gone_through(left_early, {}, make)
    assert "left alone: its sampler draws or counts with every batch" in said_of(told)


def test_nor_does_it_get_more_batches_ahead() -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(Numbers(), BATCH, sampler=AsItGoes(), num_workers=1)

    assert gone_through(whole, {"loader.prefetch": 5}, make, told) == gone_through(whole, {}, make)
    assert "left alone: its sampler draws or counts" in said_of(told)


@pytest.mark.parametrize("dataset", [Counting, GoingOn])
def test_workers_do_not_live_on_where_new_ones_begin_anew(dataset: Any) -> None:
    told: dict[str, object] = {}

    def make() -> Any:
        return DataLoader(dataset(), BATCH, num_workers=1)

    def epochs(loader: Any) -> list[Any]:
        return [[batch_of(batch) for batch in loader] for _ in range(3)]

    assert gone_through(epochs, LIVING_ON, make, told) == gone_through(epochs, {}, make)
    assert "left alone: its dataset changes as it is read" in said_of(told)


def test_streams_that_may_be_gone_through_again() -> None:
    assert why_not_repeatable(Shared()) is None
    assert "passes in _count" in english(why_not_repeatable(GoingOn()) or "")
    assert "source" in english(why_not_repeatable(FromIterator()) or "")


@pytest.mark.parametrize("profile", [LIVING_ON, {"loader.workers": 3}], ids=str)
def test_a_loader_whose_workers_have_ended_begins_with_new_ones(profile: dict[str, Any]) -> None:
    def interrupted(loader: Any) -> list[Any]:
        seen: list[Any] = []
        for epoch in range(3):
            iterator = iter(loader)
            seen += [batch_of(next(iterator)) for _ in range(2)]
            if epoch == 1:
                iterator._shutdown_workers()  # as after an error of theirs
        return seen

    def make() -> Any:
        return DataLoader(Numbers(), BATCH, num_workers=1)

    assert gone_through(interrupted, profile, make) == gone_through(interrupted, {}, make)


@pytest.mark.parametrize("kind", [DataLoader, Mine])
def test_an_iterator_that_is_used_up_and_held_gives_its_workers_on(kind: Any) -> None:
    with applied("loader.workers", "auto"):
        loader = kind(Numbers(), BATCH)
        held = iter(loader)
        list(held)
        workers = [worker.pid for worker in held._workers]
        again = iter(loader)

        assert again is not held and [worker.pid for worker in again._workers] == workers
        assert next(held, None) is None
        del held
        assert [batch_of(batch)[0] for batch in again] == [batch_of(batch)[0] for batch in DataLoader(Numbers(), BATCH)]


def test_a_look_sees_what_counts_and_what_only_keeps() -> None:
    assert probe_dataset(Counting()).changes == "calls" and probe_dataset(Counting()).same is False
    assert probe_dataset(CountingOnly()).changes == "calls" and probe_dataset(CountingOnly()).is_repeatable
    assert probe_dataset(Keeping()).changes is None and probe_dataset(Keeping()).is_repeatable


def test_a_look_sees_the_sampler_and_the_collate_function() -> None:
    def seen(**settings: Any) -> tuple[Any, ...]:
        loader = DataLoader(Numbers(), BATCH, **settings)
        found = probe_dataset(loader.dataset, Batching.of(loader))
        return found.order_draws, found.collate_draws, found.collates_same

    generator = torch.Generator()
    assert seen(shuffle=True) == seen(shuffle=True, generator=generator) == (False, False, True)
    assert seen(sampler=AsItGoes())[0] and seen(sampler=WithOwnGenerator())[0]
    assert seen(sampler=RandomSampler(Numbers(), replacement=True, num_samples=99, generator=generator))[0]
    assert seen(collate_fn=noisy) == (False, True, True)
    assert seen(collate_fn=Numbering()) == (False, False, False)
