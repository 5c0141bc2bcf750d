"""Batches on their way to a device. "meta" stands for one that is not here: a copy to it is a real move."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from flatout.feed.device_prefetch import BringAhead, FirstUse, prefetch
from flatout.feed.leaves import leaves, map_tensors
from flatout.records.message import Message
from flatout.words import english

Pair = namedtuple("Pair", "image label")


@dataclass(frozen=True)
class Views:
    images: torch.Tensor
    name: str = "views"


def test_tensors_are_found_wherever_they_are() -> None:
    ones = torch.ones(2)
    batch = {"a": [ones, 3], "b": Pair(ones, "x"), "c": Views(ones), "d": None}

    assert {path for path, _ in leaves(batch)} == {("a", 0), ("b", 0), ("c", ".images")}

    doubled = map_tensors(batch, lambda path, tensor: tensor * 2)

    assert doubled["b"].image.tolist() == [2, 2] and isinstance(doubled["b"], Pair)
    assert doubled["c"].images.tolist() == [2, 2] and doubled["c"].name == "views"
    assert batch["c"].images.tolist() == [1, 1] and batch["a"][0] is ones


def test_a_batch_without_tensors_stays_the_same_object() -> None:
    batch = {"a": ["x", 3], "b": (1, 2)}

    assert map_tensors(batch, lambda path, tensor: tensor + 1) is batch


def test_prefetched_batches_come_in_order_and_all() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=3)

    ahead = prefetch(loader, "cpu", depth=2)

    assert [batch[0].tolist() for batch in ahead] == [batch[0].tolist() for batch in loader]
    assert len(ahead) == 4 and ahead.batch_size == 3
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        prefetch(loader, "cpu", depth=0)


def _looked_at(use: Any) -> FirstUse:
    first = FirstUse()
    use(first.watched({"x": torch.arange(4.0), "y": torch.arange(4)}))
    return first


def test_what_goes_straight_to_the_device_is_seen() -> None:
    def use(batch: Any) -> None:
        assert batch["x"].shape == (4,) and len(batch["y"]) == 4 and isinstance(batch["x"], torch.Tensor)
        moved = batch["x"].to("meta")
        assert type(moved) is torch.Tensor
        (moved + 1).sum()

    first = _looked_at(use)

    assert first.moves == {("x",): torch.device("meta")} and not first.touched


@pytest.mark.parametrize(
    ("use", "function"),
    [
        (lambda batch: batch["x"].numpy(), "numpy"),
        (lambda batch: batch["x"] + 1, "add"),
        (lambda batch: batch["x"][:2].to("meta"), "__getitem__"),
        (lambda batch: batch["x"].T, "__get__"),
        (lambda batch: batch["x"].add_(1), "add_"),
        (lambda batch: batch["x"].to(torch.float16), "to"),
        (lambda batch: print(batch["x"]), "__repr__"),
        (lambda batch: torch.stack([batch["x"], batch["x"]]), "stack"),
    ],
)
def test_what_is_used_on_the_host_first_is_seen(use: Any, function: str) -> None:
    first = _looked_at(use)

    assert first.touched == {("x",): function} and not first.moves


def test_what_a_function_gives_back_is_what_it_would_have_given() -> None:
    x = torch.arange(4.0)
    probe = FirstUse().watched([x])[0]

    assert type(probe * 2) is torch.Tensor
    assert torch.equal(probe * 2, x * 2) and probe.tolist() == x.tolist()
    assert probe.data_ptr() == x.data_ptr()


class _Told:
    def __init__(self) -> None:
        self.live: dict[str, object] = {}
        self.why = ""

    def tell(self, **live: object) -> None:
        self.live.update(live)

    def give_up(self, why: Message) -> None:
        self.why = english(why)


class _Batches:
    """An iterator of a loader, which may begin anew."""

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.begin(batches)

    def begin(self, batches: list[torch.Tensor]) -> None:
        self.left = iter(batches)
        self._num_yielded = 0

    def next(self) -> torch.Tensor:
        batch = next(self.left)
        self._num_yielded += 1
        return batch


def _through(bring: BringAhead, iterator: _Batches, use: Any, most: int = 100) -> list[Any]:
    got = []
    while len(got) < most:
        try:
            batch = bring.next(iterator, _Batches.next)
        except StopIteration:
            break
        use(batch)
        got.append(batch)
    return got


def test_after_three_looks_batches_are_there_before_they_are_asked_for() -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")

    got = _through(bring, _Batches([torch.full((2,), float(i)) for i in range(7)]), lambda batch: batch.to("meta"))

    assert told.live == {"device": "meta", "tensors": 1} and not told.why
    assert len(got) == 7
    assert [batch.device.type for batch in got] == ["cpu"] * 3 + ["meta"] * 4


def test_while_it_rests_batches_come_as_they_are_once_those_on_their_way_have_come() -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")
    iterator = _Batches([torch.full((2,), float(i)) for i in range(12)])

    before = _through(bring, iterator, lambda batch: batch.to("meta"), most=5)
    resting = [bring.next(iterator, _Batches.next, rests=True) for _ in range(4)]
    after = _through(bring, iterator, lambda batch: batch.to("meta"))

    kinds = [[batch.device.type for batch in got] for got in (before, resting, after)]
    assert kinds == [["cpu"] * 3 + ["meta"] * 2, ["meta", "cpu", "cpu", "cpu"], ["meta"] * 3]
    assert [float(batch[0]) for batch in resting[1:]] == [6, 7, 8]


def test_a_script_that_reads_its_batches_is_left_alone() -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")

    got = _through(bring, _Batches([torch.full((2,), float(i)) for i in range(6)]), lambda batch: batch.mean())

    assert "on the host" in told.why and "mean" in told.why
    assert [batch.tolist()[0] for batch in got] == [0, 1, 2, 3, 4, 5]


def _clean_and_noisy(batch: torch.Tensor) -> None:
    """Two copies on the device; brought ahead, the noise would be in both."""
    batch.to("meta")
    batch.to("meta").add_(1.0)


def _shown(batch: torch.Tensor) -> None:
    batch.to("meta")
    batch.numpy()


@pytest.mark.parametrize(("use", "function"), [(_clean_and_noisy, "to"), (_shown, "numpy")])
def test_a_script_that_uses_a_batch_again_after_moving_it_is_left_alone(use: Any, function: str) -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")

    got = _through(bring, _Batches([torch.zeros(2)] * 6), use)

    assert told.why == f"the script uses batch again after it has moved it ({function})"
    assert [batch.device.type for batch in got] == ["cpu"] * 6


def test_a_sampler_that_draws_as_it_goes_is_left_alone() -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")

    class Drawing:
        pass

    iterator = Drawing()
    for _ in range(4):
        bring.next(iterator, lambda it: torch.rand(2)).to("meta")

    assert "random numbers" in told.why


def test_batches_of_an_epoch_that_was_left_do_not_come_in_the_next() -> None:
    told = _Told()
    bring = BringAhead(torch, 3, told.tell, told.give_up, device="meta")
    iterator = _Batches([torch.zeros(2)] * 9)
    left = _through(bring, iterator, lambda batch: batch.to("meta"), most=5)

    iterator.begin([torch.zeros(3)] * 4)  # as `iter(loader)` does with workers that live on
    sizes = [len(batch) for batch in _through(bring, iterator, lambda batch: None)]

    assert left[-1].device.type == "meta"
    assert sizes == [3, 3, 3, 3]
