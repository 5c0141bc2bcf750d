"""Which batches are taken once a script's loaders run alone, with torch's own loaders in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, dataloader

from flatout.attach.patching import Patches
from flatout.attach.trial import loader_throughput as module
from flatout.attach.trial.loader_throughput import TAKES_OVER_AFTER, LoaderThroughput

_STEPS = 60


class Taken(BaseException):
    """Ends the script, as a trial does."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self.seconds, self.samples, self.epochs = figures["seconds"], figures["samples"], figures["epochs"]


class Rows(Dataset[Any]):
    """Counts how often it is read."""

    def __init__(self, count: int, make: Callable[[int], Any] = lambda i: torch.full((3,), float(i))) -> None:
        self.count, self.make, self.reads = count, make, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.make(index)


@pytest.fixture
def feeding(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoaderThroughput]:
    monkeypatch.setattr(module, "_LEAST_S", 0.0)

    def done(figures: dict[str, Any]) -> None:
        raise Taken(figures)

    patches = Patches("__tested__")
    found = LoaderThroughput(torch, _STEPS, 30.0, done)
    found.install(dataloader, patches)
    yield found
    patches.restore()


def taken(feeding: LoaderThroughput, script: Callable[[], Iterator[Any]]) -> Taken:
    """`script` yields where its optimizer makes a step."""
    with pytest.raises(Taken) as ended:
        for count, _ in enumerate(script(), 1):
            assert not feeding.end_step(count), "it gave up"
    return ended.value


def test_it_trains_for_some_steps_and_goes_on_where_it_was(feeding: LoaderThroughput) -> None:
    rows, seen = Rows(1000), []

    def script() -> Iterator[Any]:
        for batch in DataLoader(rows, 4):
            seen.append(batch)
            yield

    found = taken(feeding, script)

    assert len(seen) == TAKES_OVER_AFTER
    assert len(found.seconds) >= _STEPS
    assert set(found.samples) == {4.0}
    assert rows.reads % 1000 == 4 * (TAKES_OVER_AFTER + len(found.seconds)) % 1000


def test_an_epoch_that_ends_begins_anew_even_of_a_loader_that_only_the_loop_holds(feeding: LoaderThroughput) -> None:
    def script() -> Iterator[Any]:
        while True:
            for _ in DataLoader(Rows(20), 4):
                yield

    found = taken(feeding, script)

    assert len(found.seconds) >= _STEPS
    assert found.epochs == (TAKES_OVER_AFTER % 5 + len(found.seconds) - 1) // 5


def test_two_loaders_side_by_side_make_a_step_together(feeding: LoaderThroughput) -> None:
    one, other = Rows(4000), Rows(4000)

    def script() -> Iterator[Any]:
        for _ in zip(DataLoader(one, 4), DataLoader(other, 2), strict=False):
            yield

    found = taken(feeding, script)

    assert set(found.samples) == {6.0}
    assert one.reads > 4 * _STEPS and other.reads > 2 * _STEPS


def test_two_loaders_in_turns_are_taken_in_turns(feeding: LoaderThroughput) -> None:
    def script() -> Iterator[Any]:
        loaders = [iter(DataLoader(Rows(40_000), size)) for size in (4, 2)]
        for loader in itertools.cycle(loaders):
            next(loader)
            yield

    found = taken(feeding, script)

    assert set(found.samples[::2]) | set(found.samples[1::2]) == {4.0, 2.0}
    assert found.samples[0] != found.samples[1]


def test_accumulated_batches_are_one_step(feeding: LoaderThroughput) -> None:
    def script() -> Iterator[Any]:
        for number, _ in enumerate(DataLoader(Rows(10_000), 4), 1):
            if number % 3 == 0:
                yield

    assert set(taken(feeding, script).samples) == {12.0}


@pytest.mark.parametrize("is_grad_enabled", [True, False])
def test_an_evaluation_has_no_part_in_it(feeding: LoaderThroughput, is_grad_enabled: bool) -> None:
    held_out = Rows(400)
    evaluation = DataLoader(held_out, 8)

    def script() -> Iterator[Any]:
        while True:
            for _ in DataLoader(Rows(24), 4):
                yield
            with torch.set_grad_enabled(is_grad_enabled):
                for _ in evaluation:
                    pass

    found = taken(feeding, script)

    assert len(found.seconds) >= _STEPS
    assert set(found.samples) == {4.0}
    assert held_out.reads == 400


def test_streams_dictionaries_and_batches_of_unknown_size(feeding: LoaderThroughput) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return ({"x": torch.zeros(5), "name": str(i)} for i in itertools.count())

    def script() -> Iterator[Any]:
        for _ in zip(
            DataLoader(Stream(), 4), DataLoader(Rows(5000, lambda i: object()), batch_size=None), strict=False
        ):
            yield

    # One that cannot be told is not counted as none.
    assert set(taken(feeding, script).samples) == {None}


def test_a_script_without_loaders_is_not_waited_for(feeding: LoaderThroughput) -> None:
    given_up = next(count for count in itertools.count(1) if feeding.end_step(count))

    assert given_up == TAKES_OVER_AFTER + 1


def test_what_a_loader_raises_is_the_scripts_to_deal_with(feeding: LoaderThroughput) -> None:
    def broken(index: int) -> Any:
        if index >= 4 * (TAKES_OVER_AFTER + 3):
            raise ValueError("a broken sample")
        return torch.zeros(3)

    count = 0
    with pytest.raises(ValueError, match="a broken sample"):
        for count, _ in enumerate(DataLoader(Rows(1000, broken), 4), 1):
            assert not feeding.end_step(count)

    assert count == TAKES_OVER_AFTER
    assert feeding.end_step(count + 1)


def test_a_loader_without_batches_ends_it(feeding: LoaderThroughput) -> None:
    rows = Rows(4 * (TAKES_OVER_AFTER + 2))

    def script() -> Iterator[Any]:
        loader = DataLoader(rows, 4)
        for number, _ in enumerate(loader, 1):
            if number == TAKES_OVER_AFTER:
                rows.count = 0
            yield

    assert len(taken(feeding, script).seconds) <= 2


def test_torch_is_as_it_was_afterwards() -> None:
    before = dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__
    patches = Patches("__tested__")

    LoaderThroughput(torch, 1, 1.0, lambda figures: None).install(dataloader, patches)
    patches.restore()

    assert (dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__) == before
    assert not hasattr(dataloader._BaseDataLoaderIter, "_flatout_source")
