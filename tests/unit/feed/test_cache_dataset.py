"""`cached(dataset)`: what may be kept, what is refused and why, and that it is otherwise the same dataset."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data

from flatout.feed.cache import place as cache_place
from flatout.feed.cache.dataset import cache_stats, cached, is_cached, uncached
from flatout.feed.cache.randomness import alike, is_deterministic
from flatout.feed.seeding import random_states, set_random_states
from tests.unit.feed.keeping import Squares, folder, kept, notes

__all__ = ["folder", "notes"]  # fixtures


class Batched(Squares):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value


class Half:
    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value / 2


class Flip:
    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value.flip(0) if torch.rand(1) < 0.5 else value


class Noise:
    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return value + random.random()


class Transformed(Squares):
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        super().__init__()
        self.transform: Any = Compose(transforms)

    def __getitem__(self, index: int) -> Any:
        self.readings.append(index)
        return {"image": self.transform(torch.arange(20.0) + index), "label": index}


class ChangedAfter(Transformed):
    """Does something to what the transforms returned."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["image"] * 2


def test_every_sample_is_loaded_once(notes: list[str]) -> None:
    dataset = Squares()
    wrapped = kept(dataset, notes)

    for _ in range(3):
        assert all(alike(wrapped[index], Squares()[index]) for index in range(30))

    assert sorted(dataset.readings) == list(range(30))
    stats = wrapped.stats()
    assert (stats.hits, stats.misses, stats.items, stats.warm_hit_rate) == (60, 30, 30, 1.0)
    assert stats.predicted_hit_rate == 1.0 and not notes
    assert "[Squares] Cache Stats:" in str(stats) and "Hit Rate: 66.67% (60 hits / 30 misses)" in str(stats)


def test_looking_at_a_dataset_leaves_no_trace(notes: list[str]) -> None:
    dataset = Squares()
    before = random_states()

    kept(dataset, notes)

    assert dataset.readings == [] and random_states() == before


def test_threads_that_the_parent_has_started_do_not_hang_the_look(notes: list[str]) -> None:
    class Large(Squares):
        def __getitem__(self, index: int) -> Any:
            return torch.full((400_000,), float(index)).exp()

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1_000_000).exp().sum()

    wrapped = cached(Large(), "80MB", note=notes.append)
    torch.set_num_threads(threads)

    assert is_cached(wrapped), notes


def test_it_passes_for_the_dataset_it_wraps(notes: list[str]) -> None:
    dataset = Squares()
    wrapped = kept(dataset, notes)

    assert isinstance(wrapped, Squares) and len(wrapped) == 30 and wrapped.length == 30
    wrapped.extra = 5
    assert dataset.extra == 5  # type: ignore[attr-defined]
    del wrapped.extra
    assert not hasattr(wrapped, "extra") and not hasattr(wrapped, "__getstate_of_none__")
    with pytest.raises(IndexError):
        wrapped[30]
    assert len(list(wrapped)) == 30
    assert uncached(wrapped) is dataset and cached(wrapped, "8MB") is wrapped


def test_a_caller_may_change_a_sample(notes: list[str]) -> None:
    wrapped = kept(Squares(), notes)

    for _ in range(3):
        wrapped[3][0].zero_()

    assert wrapped[3][0].eq(9).all()


def test_batches_are_read_at_once_where_the_dataset_does_so(notes: list[str]) -> None:
    assert not hasattr(kept(Squares(), notes), "__getitems__")
    dataset = Batched()
    wrapped = kept(dataset, notes)
    wrapped[4]

    batch = wrapped.__getitems__([3, 4, 5])

    assert alike(batch, [Squares()[index] for index in (3, 4, 5)])
    assert dataset.readings == [4, 3, 5]
    assert alike(wrapped.__getitems__([3, 4, 5]), batch) and dataset.readings == [4, 3, 5]


def test_it_is_found_again_by_a_process_that_gets_it_pickled(notes: list[str]) -> None:
    wrapped = cached(Squares(), "8MB")
    wrapped[1]

    again = pickle.loads(pickle.dumps(wrapped))

    again[1]
    assert is_cached(again) and again.stats().hits == 1


def test_a_dataset_with_stats_of_its_own_keeps_them(notes: list[str]) -> None:
    dataset = Squares()
    dataset.stats = "mine"  # type: ignore[attr-defined]

    wrapped = kept(dataset, notes)

    assert wrapped.stats == "mine" and cache_stats(wrapped).hits == 0


def test_a_setting_that_is_changed_in_mid_training_ends_the_cache(notes: list[str]) -> None:
    dataset = Squares()
    wrapped = kept(dataset, notes)
    assert wrapped[3][0][0] == 9

    wrapped.scale = 2

    assert wrapped[3][0][0] == 18 and wrapped[3][0][0] == 18
    assert notes == ["the cache is no longer used: the dataset was changed while it was in use"]


def test_what_the_dataset_changes_by_itself_does_not(notes: list[str]) -> None:
    class Lazy(Squares):
        file: Any = None

        def __init__(self) -> None:
            super().__init__()
            self.file = None

        def __getitem__(self, index: int) -> Any:
            if self.file is None:
                self.file = object()
            return super().__getitem__(index)

    dataset = Lazy()
    wrapped = kept(dataset, notes)
    assert dataset.file is None

    for index in (1, 2, 1):
        wrapped[index]

    assert wrapped.stats().hits == 1 and not notes


def test_an_error_of_the_dataset_is_the_script_s(notes: list[str]) -> None:
    class Broken(Squares):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise KeyError("seven")
            return super().__getitem__(index)

    wrapped = kept(Broken(), notes)

    with pytest.raises(KeyError, match="seven"):
        wrapped[7]
    wrapped[8]
    assert wrapped.stats().items == 1


class Drawing(Squares):
    def __getitem__(self, index: int) -> Any:
        np.random.rand()
        return super().__getitem__(index)


class Unseeded(Squares):
    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random(3)


class NoLength(data.Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return index


class Stream(data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield 1


class Dies(Squares):
    def __getitem__(self, index: int) -> Any:
        import os

        os._exit(3)


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Drawing(), "draws from numpy's random generator"),
        (Unseeded(), "differs between two readings"),
        (NoLength(), "it has no length"),
        (Stream(), "no map-style dataset"),
        (Squares(0), "it is empty"),
        (Dies(), "died"),
        (ChangedAfter([Half(), Flip()]), "changes what it returns"),
        (data.TensorDataset(torch.zeros(8, 3, 224, 224)), "nothing to gain"),
        (data.StackDataset(list(range(100))), "nothing to gain"),
    ],
)
def test_what_must_not_be_kept_is_refused_with_the_reason(dataset: Any, reason: str, notes: list[str]) -> None:
    assert cached(dataset, "8MB", note=notes.append) is dataset
    assert len(notes) == 1 and reason in notes[0] and notes[0].startswith(type(dataset).__name__)


@pytest.mark.parametrize("options", [{"policy": "best"}, {"budget": "lots"}])
def test_a_mistake_in_the_call_is_told_as_such(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options.values()))):
        cached(Squares(), **options)


def test_a_folder_on_a_disk_takes_what_shared_memory_cannot(
    tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_place, "SHARED_MEMORY", str(tmp_path / "none"))
    dataset = Squares()
    assert cached(dataset, "8MB", note=notes.append) is dataset
    assert len(notes) == 1 and "spill" in notes[0]

    wrapped = kept(dataset, notes, spill=str(tmp_path))
    wrapped[3]
    wrapped[3]

    assert wrapped.stats().hits == 1 and len(list(tmp_path.iterdir())) == 1


def test_the_generators_are_as_before_after_the_check() -> None:
    before = random_states()

    assert is_deterministic(Drawing(), [0]).why_not is not None
    assert is_deterministic(Squares(), [0, 5]).why_not is None

    assert random_states() == before


@pytest.mark.parametrize("is_subset", [False, True])
@pytest.mark.parametrize("transforms", [[Half(), Flip()], [Flip(), Half()], [Half(), Half(), Noise(), Half(), Flip()]])
def test_random_transforms_are_applied_anew_to_what_was_kept(
    transforms: list[Any], is_subset: bool, notes: list[str]
) -> None:
    inner = Transformed(transforms)
    plain: Any = Transformed(transforms)
    dataset: Any = inner
    if is_subset:
        dataset, plain = (data.Subset(d, list(range(5, 25))) for d in (dataset, plain))
    wrapped = kept(dataset, notes)
    compose = inner.transform
    order = [3, 4, 3, 3, 9, 4]
    start = random_states()

    expected = [plain[index] for index in order]
    end = random_states()
    set_random_states(start)
    given = [wrapped[index] for index in order]

    assert alike(given, expected), "the same draws in the same order"
    assert random_states() == end
    assert len(inner.readings) == 3 and inner.transform is compose
    assert cache_stats(wrapped).hits == 3


def test_a_sample_that_turns_out_not_to_be_cuttable_is_read_whole(notes: list[str]) -> None:
    class Sometimes(Transformed):
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            return sample if index != 7 else {**sample, "image": sample["image"] * 2}

    plain, wrapped = Sometimes([Half(), Noise()]), kept(Sometimes([Half(), Noise()]), notes)
    start = random_states()
    expected = [plain[index] for index in (6, 7, 7, 6)]
    set_random_states(start)

    given = [wrapped[index] for index in (6, 7, 7, 6)]

    assert alike(given, expected) and wrapped.stats().items == 1


def test_replacing_the_transforms_ends_the_cache(notes: list[str]) -> None:
    dataset = Transformed([Half(), Flip()])
    wrapped = kept(dataset, notes)
    wrapped[0]

    dataset.transform = Compose([lambda value: value * 0])

    assert wrapped[0]["image"].sum() == 0 and "was changed" in notes[0]
