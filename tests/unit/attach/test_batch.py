"""The number of samples in a batch of any make."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from flatout.attach.batch import count_at, count_samples, find_samples, tensor_bytes

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
