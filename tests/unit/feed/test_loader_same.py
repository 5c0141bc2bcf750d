"""The same batches in the same order as torch's own loader, whatever the workers."""

from __future__ import annotations

import random
from collections import namedtuple
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, RandomSampler, WeightedRandomSampler

from flatout.feed.iterator import FeedIterator
from flatout.feed.loader import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
Point = namedtuple("Point", "x y")


class Plain:
    """Samples with all that the default collation knows."""

    def __init__(self, size: int = 29) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        image = torch.full((3, 5, 4), float(index)).to(torch.float16)
        return {"image": image, "n": index, "a": numpy.arange(index, index + 4), "p": Point(0.5 * index, "w")}


class Random(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(2) + index, random.random(), numpy.random.rand()


class Together(Plain):
    """Loads a whole batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(i, len(indices)) for i in indices]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id if info else 0, 40, info.num_workers if info else 1))


def told(value: Any) -> Any:
    """A batch as something that compares bit by bit."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.numpy().tobytes()
    if isinstance(value, numpy.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [told(v) for v in value]
    return value


def history(kind: Any, dataset: Any, epochs: int = 2, **settings: Any) -> list[Any]:
    """All batches of some epochs, and what the global generator gives after each."""
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    loader = kind(dataset, 8, True, **settings) if "shuffle" not in settings else kind(dataset, **settings)
    seen: list[Any] = []
    for _ in range(epochs):
        seen += [told(batch) for batch in loader]
        seen.append(torch.rand(1).item())
    return seen


@pytest.mark.parametrize("prefetch", [1, 4])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_as_torch_with_the_same_arguments(workers: int, persistent: bool, prefetch: int) -> None:
    settings = {"num_workers": workers, "persistent_workers": persistent, "prefetch_factor": prefetch}

    assert history(DataLoader, Plain(), **settings) == history(TorchLoader, Plain(), **settings)


@pytest.mark.parametrize("workers", [0, 2])
def test_persistent_workers_that_compensate_are_as_fresh_ones(workers: int) -> None:
    compensated = history(DataLoader, Plain(), epochs=3, num_workers=2, persistent_workers=True, compensate=True)

    assert compensated == history(TorchLoader, Plain(), epochs=3, num_workers=workers)


def test_own_iterator_compensates_too_when_batches_are_handed_out_whole() -> None:
    settings = {"num_workers": 2, "persistent_workers": True, "compensate": True, "per_sample": False}

    assert history(DataLoader, Plain(), epochs=3, **settings) == history(TorchLoader, Plain(), epochs=3, num_workers=2)


@pytest.mark.parametrize("workers", [0, 2])
def test_random_transforms_are_torchs_when_batches_are_handed_out_whole(workers: int) -> None:
    ours = history(DataLoader, Random(), num_workers=workers, per_sample=False)

    assert ours == history(TorchLoader, Random(), num_workers=workers)


def test_seeds_per_sample_do_not_depend_on_the_workers() -> None:
    seen = [history(DataLoader, Random(), num_workers=n, seeding="sample") for n in (0, 1, 3)]

    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] != seen[0][5]  # another epoch, other numbers


def test_random_samples_are_told_when_their_numbers_depend_on_timing() -> None:
    with pytest.warns(UserWarning, match="seeding='sample'"):
        history(DataLoader, Random(), num_workers=2)


def test_each_sampler_and_generator_draws_as_with_torch() -> None:
    def make(kind: Any, which: str) -> list[Any]:
        generator = torch.Generator().manual_seed(3)
        samplers: dict[str, Any] = {
            "weighted": {"sampler": WeightedRandomSampler([1.0, 5.0] * 14, 30)},
            "own generator": {"sampler": RandomSampler(Plain(), generator=generator)},
            "loader's generator": {"shuffle": True, "generator": generator},
            "batches": {"batch_sampler": [[1, 2], [3], [4, 5, 6]]},
            "drop last": {"batch_size": 6, "drop_last": True},
        }
        settings = {"shuffle": None, "num_workers": 2, **samplers[which]}
        return [history(kind, Plain(), **settings), generator.get_state().tolist()]

    for which in ("weighted", "own generator", "loader's generator", "batches", "drop last"):
        assert make(DataLoader, which) == make(TorchLoader, which), which


def test_a_batch_that_a_dataset_loads_at_once_is_not_cut() -> None:
    assert history(DataLoader, Together(), num_workers=3) == history(TorchLoader, Together(), num_workers=3)


def test_what_torch_does_better_is_torchs() -> None:
    for dataset, settings in [
        (Stream(), {"batch_size": 4, "num_workers": 2}),
        (Plain(), {"batch_size": None, "num_workers": 2}),
        (Plain(), {"batch_size": 4, "num_workers": 0}),
        (Plain(), {"batch_size": 4, "num_workers": 1, "in_order": False}),
    ]:
        loader = DataLoader(dataset, **settings)
        assert not isinstance(iter(loader), FeedIterator)
        assert [told(b) for b in loader] == [told(b) for b in TorchLoader(dataset, **settings)]


def test_an_epoch_that_is_left_does_not_leak_into_the_next() -> None:
    settings = {"num_workers": 2, "persistent_workers": True}

    def leave_early(kind: Any) -> list[Any]:
        torch.manual_seed(1)
        loader = kind(Plain(200), 4, True, **settings)
        return [[told(b) for b in islice(loader, 3)], [told(b) for b in loader]]

    assert leave_early(DataLoader) == leave_early(TorchLoader)


def test_batches_that_are_kept_stay_as_they_were() -> None:
    loader = DataLoader(Plain(300), batch_size=1, num_workers=2)

    kept = list(loader)

    assert [int(b["n"]) for b in kept] == list(range(300))
    assert all(float(b["image"].mean()) == int(b["n"]) for b in kept)


@pytest.mark.parametrize("taken", [1, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_resumed_epoch_goes_on_with_the_very_same_batches(taken: int, workers: int, own_generator: bool) -> None:
    def make() -> DataLoader:
        generator = torch.Generator().manual_seed(5) if own_generator else None
        return DataLoader(Plain(), 8, True, num_workers=workers, generator=generator, seeding="sample")

    torch.manual_seed(11)
    whole = make()
    first = [told(b) for b in whole]
    second = []
    for batch in whole:
        second.append(told(batch))
        if len(second) == taken:
            state, there = whole.state_dict(), torch.get_rng_state()
    after = [told(b) for b in whole]
    torch.manual_seed(99)
    torch.set_rng_state(there)
    resumed = make()
    resumed.load_state_dict(state)
    rest = [told(b) for b in resumed]

    assert first != second
    assert rest == second[taken:]
    assert [told(b) for b in resumed] == after


def test_the_state_after_an_epoch_begins_the_next() -> None:
    torch.manual_seed(2)
    loader = DataLoader(Plain(), 8, True, num_workers=2)
    list(loader)

    state, there = loader.state_dict(), torch.get_rng_state()
    next_one = [told(b) for b in loader]
    torch.set_rng_state(there)
    resumed = DataLoader(Plain(), 8, True, num_workers=2)
    resumed.load_state_dict(state)

    assert state["batches"] == 0
    assert [told(b) for b in resumed] == next_one


def test_workers_come_and_go_in_mid_epoch_and_the_order_stays() -> None:
    expected = [told(b) for b in TorchLoader(Plain(160), 4)]
    loader = DataLoader(Plain(160), 4, num_workers=1)

    seen = []
    for number, batch in enumerate(loader):
        seen.append(told(batch))
        if number in (5, 12, 20, 30):
            loader.resize({5: 4, 12: 1, 20: 3, 30: 2}[number])

    assert seen == expected


def test_workers_may_start_before_they_are_needed() -> None:
    def warmed(kind: Any) -> list[Any]:
        torch.manual_seed(4)
        loader = kind(Plain(), 8, True, num_workers=2)
        if kind is DataLoader:
            loader.warm()
        return [told(b) for b in loader]

    assert warmed(DataLoader) == warmed(TorchLoader)
