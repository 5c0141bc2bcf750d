"""The number of samples in a batch of any make."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from flatout.attach.batch import PaddingInspector, count_at, count_samples, find_padding, find_samples, tensor_bytes
from tests.unit.attach.contexts import Notes

Pair = namedtuple("Pair", "image label")


@dataclass
class Sample:
    name: str
    image: Any
    camera: Any


class Slotted:
    __slots__ = ("pixels",)

    def __init__(self, pixels: Any) -> None:
        self.pixels = pixels


class Graphs:
    num_graphs = 5
    x = np.zeros((123, 7))


def make(*shape: int) -> Any:
    return np.zeros(shape)


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (make(8, 3), 8),
        ([make(8, 3), make(8)], 8),
        ((make(4, 4), make(8, 3), make(8)), 8),
        ({"image": make(8, 3), "label": make(8)}, 8),
        (UserDict(ids=make(8, 12)), 8),
        (Pair(make(8, 3), make(8)), 8),
        ({"a": {"b": [make(8, 2)]}}, 8),
        (Sample("x", make(8, 3), make(8, 4, 4)), 8),
        (Slotted(make(8, 3)), 8),
        (Graphs(), 5),
        ([1, 2, 3], 3),
        ({"text": ["a", "b"]}, 2),
        ("text", 0),
        (None, 0),
        (make(), 0),
    ],
)
def test_the_size_is_found(batch: Any, size: int) -> None:
    assert count_samples(batch) == size


@pytest.mark.parametrize("batch", [[make(4, 4), make(8, 3), make(8)], Graphs(), Sample("x", make(8, 3), make(8, 4))])
def test_the_way_found_is_good_for_the_next_batch(batch: Any) -> None:
    path, size = find_samples(batch)

    assert count_at(path, batch) == size


def test_the_majority_decides() -> None:
    assert count_samples([make(1), make(16, 3), make(16, 5)]) == 16


@pytest.mark.parametrize(
    ("batch", "asked", "size"),
    [
        (Sample("x", make(3, 8, 8), make(4, 4)), 1, 1),  # one sample, handed on bare
        ([Sample("x", make(3, 8, 8), make(4, 4))] * 4, 4, 4),
        ([{"image": make(3, 8, 8)}] * 4, 4, 4),
        (make(128, 32), 32, 32),  # time first
        ((make(2, 3), make(2)), 2, 2),
        ([make(6, 3), make(6)], 8, 6),  # the last batch of an epoch
        (make(8, 3), 0, 8),
    ],
)
def test_a_batch_is_never_larger_than_what_the_loader_asked_for(batch: Any, asked: int, size: int) -> None:
    assert find_samples(batch, asked)[1] == size


def test_a_long_list_of_parts_counts_the_samples_that_were_asked_for() -> None:
    boxes = [(make(4), make()) for _ in range(192)]

    assert find_samples(boxes, asked=16)[1] == 16


def test_the_bytes_of_a_batch_are_those_of_its_tensors_on_the_host() -> None:
    batch = {"x": torch.zeros(4, 8), "more": [torch.zeros(3, dtype=torch.uint8), np.zeros(100)], "name": "a"}

    assert tensor_bytes(batch) == 4 * 8 * 4 + 3
    assert tensor_bytes(torch.zeros(5, device="meta")) == 0


# Padding in batches of sequences, and whether the model computed it.


LENGTHS = [40, 12, 33, 25]


def tokens(pad: int = 0, lengths: list[int] | None = None, longest: int = 40) -> torch.Tensor:
    source = torch.Generator().manual_seed(1)
    rows = torch.full((len(lengths or LENGTHS), longest), pad)
    for row, length in zip(rows, lengths or LENGTHS, strict=True):
        row[:length] = torch.randint(5, 900, (length,), generator=source)
    return rows


MASK = (tokens() != 0).long()


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([tokens()], "ids"),
        ([tokens(pad=-100)], "ids"),
        ([tokens(pad=1).int()], "ids"),
        ([tokens().flip(1)], "ids"),  # filled up in front
        ([tokens(), MASK], "mask"),
        ([tokens(), MASK.bool(), torch.zeros(4, 40, dtype=torch.long)], "mask"),
        ([tokens(), torch.tensor([0, 1, 1, 0])], "ids"),
        ([torch.randn(4, 40, 80), MASK.float()], "mask"),
    ],
)
def test_the_lengths_are_found(parts: list[Any], kind: str) -> None:
    found = find_padding(torch, parts)

    assert found is not None and found["kind"] == kind
    assert (found["rows"], found["length"], found["lengths"]) == (4, 40, LENGTHS)


def test_an_end_mark_that_also_pads_is_no_trouble() -> None:
    rows = tokens(pad=2)
    rows[torch.arange(4), torch.tensor(LENGTHS) // 2] = 2

    found = find_padding(torch, [rows])

    assert found is not None and found["value"] == 2


@pytest.mark.parametrize(
    "parts",
    [
        [torch.randint(5, 900, (4, 40), generator=torch.Generator().manual_seed(0))],
        [torch.zeros(4, 40, dtype=torch.long)],
        [torch.nn.functional.one_hot(torch.tensor([3, 30, 18, 7]), 40)],
        [torch.randint(0, 2, (4, 40), generator=torch.Generator().manual_seed(0))],
        [1 - MASK],  # could be a mask of either kind
        [torch.randn(4, 3, 32, 32), tokens()],  # pictures with captions
        [tokens()[0]],
        [tokens()[:, :8]],
        [torch.randn(4, 40)],
        [],
    ],
)
def test_nothing_is_said_of_other_batches(parts: list[Any]) -> None:
    assert find_padding(torch, parts) is None


@pytest.mark.parametrize(
    ("shapes", "computed"),
    [
        ({(4, 40, 16), (4, 12)}, True),
        ({(4, 39, 16)}, True),
        ({(160, 12)}, True),
        ({(40, 4, 16)}, True),
        ({(4, 20, 16), (4, 40)}, False),
    ],
)
def test_the_graph_tells_whether_it_was_computed(shapes: set[tuple[int, ...]], computed: bool) -> None:
    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]

    look.look(3, {"input_ids": tokens(), "labels": torch.zeros(4)})
    look.note_graph(shapes)
    look.note_graph(shapes)

    ((what, value),) = notes.texts
    assert what == "padding"
    assert (value["loader"], value["computed"], value["lengths"]) == (3, computed, LENGTHS)


def test_a_batch_that_raises_and_a_pass_without_a_backward_are_no_trouble() -> None:
    class Trap:
        @property
        def shape(self) -> Any:
            raise RuntimeError("not now")

    notes = Notes()
    look = PaddingInspector(torch, lambda: notes)  # type: ignore[arg-type,return-value]

    look.look(1, [Trap()])
    look.note_graph(())
    for _ in range(100):
        look.look(1, [tokens()])
    look.note_graph({(4, 40, 16)})
    look.look(1, [tokens()])
    look.note_graph({(4, 40, 16)})

    assert len(notes.texts) == 1
