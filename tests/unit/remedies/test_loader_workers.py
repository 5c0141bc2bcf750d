"""Workers from outside: as many as are of use, and none where none are."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.feed.iterator import FeedIterator
from flatout.records.message import verbatim
from flatout.remedies.loader import probe as loader_probe
from flatout.remedies.loader.probe import LoaderProbe, fingerprint, probe_dataset
from tests.unit.remedies.applied import applied, live_in_english
from tests.unit.remedies.going_through import (
    ALL,
    AUTO,
    BATCH,
    LIVING_ON,
    TWO,
    Mine,
    Numbers,
    batch_of,
    gone_through,
    whole,
)


class Slow(Dataset[Any]):
    def __init__(self, size: int = 64, seconds: float = 0.004) -> None:
        self.size = size
        self.seconds = seconds
        self.offset = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return index + self.offset


class Drawing(Slow):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(())


class Counting(Slow):
    def __getitem__(self, index: int) -> Any:
        self.offset += 1
        return self.offset


def numbers(loader: Any) -> list[int]:
    return [int(value) for batch in loader for value in batch]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def test_a_look_sees_what_a_sample_draws_whether_it_changes_and_what_it_takes() -> None:
    before = torch.get_rng_state(), numpy.random.get_state()[1].tolist()  # type: ignore[union-attr]
    plain, drawing, counting = (probe_dataset(kind()) for kind in (Slow, Drawing, Counting))

    # A busy machine wakes a sleeping thread late, never early.
    assert plain.is_repeatable and plain.sample_s is not None and 0.004 <= plain.sample_s < 0.04
    assert drawing.draws and drawing.same
    assert counting.draws is False and counting.same is False
    assert probe_dataset({"a": 1}) == LoaderProbe()  # has no sample 0
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == numpy.random.get_state()[1].tolist()  # type: ignore[union-attr]


def test_the_number_follows_the_pace_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.feed.machine.processors", lambda: 8.0)
    with applied("loader.workers", "auto") as site:
        loader = DataLoader(Slow(160), 4)
        begun_with = []
        for _ in range(2):
            for _ in loader:
                begun_with = begun_with or [loader.num_workers]
                time.sleep(0.004)
        found, kept = loader.num_workers, loader.persistent_workers

    assert begun_with == [2]  # a batch takes 16 ms: two make one every 10
    assert 4 <= found <= 32 and kept
    (told,) = [value for name, value in live_in_english(site).items() if name.startswith("test_loader_workers.py:")]
    assert told == f"num_workers 0 → {found}"
    assert loader.num_workers == 0 and not loader.persistent_workers  # once it is undone


def test_loaders_of_training_and_evaluation_from_one_line_are_told_apart() -> None:
    with applied("loader.workers", "auto") as site:
        for _ in range(2):  # made again for every epoch
            for batch, shuffle, workers in ((4, True, 2), (1, False, 1)):
                list(DataLoader(Slow(8), batch, shuffle=shuffle, num_workers=workers))
        told = {
            name: str(value)
            for name, value in live_in_english(site).items()
            if name.startswith("test_loader_workers.py:")
        }

    first, second = sorted(told)
    assert second == f"{first} (2)"
    assert told[first].startswith("num_workers 2 → ") and told[second].startswith("num_workers 1 → ")


def test_no_more_workers_than_an_epoch_has_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.feed.machine.processors", lambda: 16.0)
    with applied("loader.workers", "auto"):
        loader = DataLoader(Slow(12, 0.02), 4)
        for _ in range(8):
            assert numbers(loader) == list(range(12))

            assert 1 <= loader.num_workers <= 3


def test_cheap_samples_get_no_workers() -> None:
    with applied("loader.workers", "auto") as site:
        loader = DataLoader(list(range(100)), 4)
        found = numbers(loader)

    assert found == list(range(100)) and loader.num_workers == 0
    assert any("num_workers stays 0: a batch takes" in str(value) for value in live_in_english(site).values())


def test_cheap_samples_of_workers_that_the_script_asked_for_come_in_memory_that_is_used_again() -> None:
    with applied("loader.workers", "auto"):
        loader = DataLoader(list(range(100)), 4, num_workers=1)
        iterator = iter(loader)
        batches = list(iterator)

    assert torch.cat(batches).tolist() == list(range(100))
    assert type(iterator).__module__.startswith("flatout.feed")


def test_workers_see_what_the_script_has_changed_between_epochs() -> None:
    before = children()
    with applied("loader.workers", "auto"):
        loader = DataLoader(Slow(16), 4)
        first = numbers(loader)
        kept = children() - before
        again = numbers(loader)
        loader.dataset.offset = 100
        changed = numbers(loader)

    assert first == again == list(range(16))
    assert kept and not kept & children()
    assert changed == list(range(100, 116))


def test_a_loader_that_iterates_its_own_way_gets_torchs_workers() -> None:
    with applied("loader.workers", "auto"):
        adopted, own = DataLoader(Slow(16), 4), Mine(Slow(16), 4)

        assert isinstance(iter(adopted), FeedIterator)
        assert not isinstance(iter(own), FeedIterator)
        assert own.num_workers >= 1 and numbers(own) == list(range(16))


def test_workers_go_with_their_loader() -> None:
    before = children()
    with applied("loader.workers", "auto"):
        loader = DataLoader(Slow(16), 4)
        numbers(loader)
        assert children() - before

        del loader

        assert not children() - before


def test_a_loader_made_again_begins_with_the_number_found(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(loader_probe, "probe_dataset", lambda *given: looks.append(given) or probe_dataset(*given))
    dataset = Slow(120)
    with applied("loader.workers", "auto"):
        first = DataLoader(dataset, 4)
        numbers(first)
        again = DataLoader(dataset, 4)
        next(iter(again))

        assert len(looks) == 1
        assert again.num_workers == first.num_workers > 0


def test_what_a_script_sets_on_a_dataset_is_seen() -> None:
    dataset = Slow()
    dataset.transform = Slow()  # type: ignore[attr-defined]
    dataset.weights = torch.zeros(3)  # type: ignore[attr-defined]
    seen = [fingerprint(dataset)]
    dataset.offset = 1
    seen.append(fingerprint(dataset))
    dataset.transform.seconds = 0.5  # type: ignore[attr-defined]
    seen.append(fingerprint(dataset))
    dataset.weights.add_(1)  # type: ignore[attr-defined]
    seen.append(fingerprint(dataset))

    assert all(one != other for one, other in itertools.pairwise(seen))
    assert fingerprint(dataset) == seen[-1]


# However a script goes through its loader: with workers from outside it sees the very same batches and numbers.


pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


# Ways of going through a loader. What they give is compared.


def two_at_once(loader: Any) -> list[Any]:
    return [[(batch_of(one), batch_of(other)) for one, other in zip(loader, loader)] for _ in range(2)]  # noqa: B905


def evaluated_in_mid_epoch(loader: Any) -> list[Any]:
    seen = []
    for number, batch in enumerate(loader):
        seen.append(batch_of(batch))
        if number in (1, 3):
            with torch.no_grad():
                seen.append([batch_of(one) for one in loader])
    return [*seen, whole(loader)]


def looked_at_first(loader: Any) -> list[Any]:
    return [batch_of(next(iter(loader))), torch.rand(()).item(), whole(loader)]


def drawn_between(loader: Any) -> list[Any]:
    iterator = iter(loader)
    before = torch.rand(()).item()
    return [before, [batch_of(batch) for batch in iterator], whole(loader)]


def never_asked(loader: Any) -> list[Any]:
    iterators = [iter(loader) for _ in range(3)]
    return [torch.rand(()).item(), batch_of(next(iterators[1])), whole(loader), batch_of(next(iterators[0]))]


def held_across_epochs(loader: Any) -> list[Any]:
    first = iter(loader)
    seen = [batch_of(next(first))]
    second = iter(loader)
    for _ in range(2):
        seen += [batch_of(next(second)), batch_of(next(first))]
    seen += [[batch_of(one) for one in second], [batch_of(one) for one in first]]
    third = iter(loader)
    return [*seen, batch_of(next(third)), next(first, "at its end"), next(second, "at its end"), whole(loader)]


def begun_again_by_name(loader: Any) -> list[Any]:
    seen: list[Any] = []
    iterator = iter(loader)
    while len(seen) < 20:
        try:
            seen.append(batch_of(next(iterator)))
        except StopIteration:
            iterator = iter(loader)
    return seen


def left_early(loader: Any) -> list[Any]:
    return [[batch_of(batch) for batch in itertools.islice(loader, taken)] for taken in (3, 1, 5, 4, 99)]


def failed_and_tried_again(loader: Any) -> list[Any]:
    seen: list[Any] = []
    for _ in range(3):
        try:
            for number, batch in enumerate(loader):
                seen.append(batch_of(batch))
                if number == 2:
                    raise RuntimeError("body")
        except RuntimeError as error:
            seen.append(str(error))
    return [*seen, whole(loader)]


def copied(loader: Any) -> list[Any]:
    seen = [batch_of(next(iter(loader)))]
    for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        seen.append([(batch_of(one), batch_of(two)) for one, two in zip(loader, other)])  # noqa: B905
    return [*seen, whole(loader)]


WAYS: tuple[Callable[[Any], list[Any]], ...] = (
    whole, two_at_once, evaluated_in_mid_epoch, looked_at_first, drawn_between, never_asked, held_across_epochs,
    begun_again_by_name, left_early, failed_and_tried_again, copied,
)  # fmt: skip


@pytest.fixture
def worth_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However cheap the samples of these tests are."""
    monkeypatch.setattr("flatout.remedies.loader.workers._CHEAP_BATCH_S", 0.0)


def _cases(profiles: dict[str, dict[str, Any]], every_day: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Each way under each profile. Those that are not for every day lead along the same paths."""
    return [
        pytest.param(
            way,
            profile,
            id=f"{way.__name__} {name}",
            marks=[] if way in every_day.get(name, ()) else pytest.mark.variant,
        )
        for name, profile in profiles.items()
        for way in WAYS
    ]


@pytest.mark.usefixtures("worth_workers")
@pytest.mark.parametrize(
    ("way", "profile"), _cases({"auto": AUTO, "two": TWO, "all": ALL}, {"auto": WAYS, "two": WAYS[1:2]})
)
def test_the_same_as_without_workers(way: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return DataLoader(Numbers(), BATCH, shuffle=True)

    assert gone_through(way, profile, make) == gone_through(way, {}, make)


@pytest.mark.usefixtures("worth_workers")
@pytest.mark.parametrize(
    ("way", "profile"),
    _cases({"auto": AUTO, "two": TWO, "all": ALL}, {"all": (two_at_once, drawn_between, begun_again_by_name)}),
)
def test_the_same_where_torchs_own_workers_are_used(way: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return Mine(Numbers(), BATCH, shuffle=True)

    assert gone_through(way, profile, make) == gone_through(way, {}, make)


@pytest.mark.usefixtures("worth_workers")
@pytest.mark.parametrize(
    ("way", "profile"),
    _cases(
        {"living on": LIVING_ON, "more": {"loader.workers": 3}},
        {"living on": (two_at_once, evaluated_in_mid_epoch, held_across_epochs)},
    ),
)
def test_the_same_as_with_workers_of_its_own(way: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return DataLoader(Numbers(), BATCH, shuffle=True, num_workers=2)

    assert gone_through(way, profile, make) == gone_through(way, {}, make)


@pytest.mark.usefixtures("worth_workers")
def test_loaders_taken_by_turns() -> None:
    def by_turns(loaders: Any) -> list[Any]:
        iterators = [iter(loader) for loader in loaders]
        seen = []
        for turn in range(12):
            one = turn % len(iterators)
            try:
                seen.append(batch_of(next(iterators[one])))
            except StopIteration:
                iterators[one] = iter(loaders[one])
        return seen

    def make() -> Any:
        numbers = Numbers()
        return [DataLoader(numbers, BATCH, shuffle=True), DataLoader(numbers, 9, shuffle=True)]

    assert gone_through(by_turns, AUTO, make) == gone_through(by_turns, {}, make)


@pytest.mark.usefixtures("worth_workers")
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_left_before_its_end_draws_no_more_from_a_given_generator(drop_last: bool) -> None:
    def make() -> Any:
        return DataLoader(
            Numbers(), BATCH, shuffle=True, drop_last=drop_last, generator=torch.Generator().manual_seed(5)
        )

    assert gone_through(left_early, AUTO, make) == gone_through(left_early, {}, make)


@pytest.mark.usefixtures("worth_workers")
@pytest.mark.parametrize("kind", [DataLoader, Mine])
def test_a_remedy_that_is_given_up_in_mid_epoch_leaves_the_rest_as_it_was(kind: Any) -> None:
    def seen(give_up: Callable[[], None]) -> list[Any]:
        torch.manual_seed(3)
        loader = kind(Numbers(), BATCH, shuffle=True)
        first = whole(loader)
        rest = []
        for number, batch in enumerate(loader):
            rest.append(batch_of(batch)[:3])
            if number == 2:
                give_up()
        return [[batch[:3] for epoch in first[1:] for batch in epoch], rest, [batch_of(one)[:3] for one in loader]]

    with applied("loader.workers", "auto") as site:
        remedied = seen(lambda: site.give_up(verbatim("seen enough")))

    assert remedied == seen(lambda: None)
