"""However a script goes through its loader: with workers from outside it sees the very same batches and numbers."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from flatout.records.message import verbatim
from tests.unit.remedies.applied import applied
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


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize(
    ("way", "profile"), _cases({"auto": AUTO, "two": TWO, "all": ALL}, {"auto": WAYS, "two": WAYS[1:2]})
)
def test_the_same_as_without_workers(way: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return DataLoader(Numbers(), BATCH, shuffle=True)

    assert gone_through(way, profile, make) == gone_through(way, {}, make)


@pytest.mark.parametrize(
    ("way", "profile"),
    _cases({"auto": AUTO, "two": TWO, "all": ALL}, {"all": (two_at_once, drawn_between, begun_again_by_name)}),
)
def test_the_same_where_torchs_own_workers_are_used(way: Any, profile: dict[str, Any]) -> None:
    def make() -> Any:
        return Mine(Numbers(), BATCH, shuffle=True)

    assert gone_through(way, profile, make) == gone_through(way, {}, make)


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


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_left_before_its_end_draws_no_more_from_a_given_generator(drop_last: bool) -> None:
    def make() -> Any:
        return DataLoader(
            Numbers(), BATCH, shuffle=True, drop_last=drop_last, generator=torch.Generator().manual_seed(5)
        )

    assert gone_through(left_early, AUTO, make) == gone_through(left_early, {}, make)


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
