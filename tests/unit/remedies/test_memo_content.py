"""Keys are equal for what is equal bit by bit, and for nothing else."""

from __future__ import annotations

import argparse
import enum
import pathlib
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatout.remedies.memo.call_key import refusal_of_class, value_at
from flatout.remedies.memo.content import Contents, Unkeyable, bits, same_bits
from flatout.remedies.memo.kept_calls import MemoryRoom
from flatout.words import english


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Point = namedtuple("Point", ["x", "y"])


@dataclass(frozen=True, slots=True)
class Inner:
    radius: int = 3


@dataclass
class Config:
    inner: Inner = field(default_factory=Inner)
    names: list[str] = field(default_factory=list)

    @property
    def double(self) -> int:
        return self.inner.radius * 2

    @property
    def counted(self) -> int:
        self.names.append("read")
        return len(self.names)

    @property
    def of_global(self) -> str:
        return __name__

    def area(self) -> int:
        return self.inner.radius**2


@dataclass
class Odd:
    radius: int = 3

    def __len__(self) -> int:
        return np.random.randint(9)


class Computed:
    def __getattr__(self, name: str) -> int:
        return len(name)


def contents(**more: Any) -> Contents:
    return Contents(torch, lambda kind: refusal_of_class(kind, set()), **more)


def key(value: Any, **more: Any) -> Any:
    return contents(**more).key([("value", value)])


DIFFERENT: list[Any] = [
    None, True, 1, 1.0, 1j, "1", b"1", 0.0, -0.0, float("inf"), (1,), [1], {1: 1}, {"1": 1}, range(1), slice(1), ...,
    int, torch.float32, torch.float64, torch.device("cpu"), torch.Size([1]), pathlib.PurePosixPath("1"),
    Colour.RED, Colour.BLUE, Point(1, 2), Point(2, 1), Inner(3), Inner(4),
    Config(), Config(names=["a"]), Config(Inner(4)),
    argparse.Namespace(a=1), argparse.Namespace(a=2), np.float32(1), np.float64(1), np.int64(1),
    np.zeros(2), np.zeros(2, np.float32), np.zeros((1, 2)), np.zeros((2, 2)).T[:, :1], np.array([0.0, -0.0]),
    torch.zeros(2), torch.tensor([0.0, -0.0]), torch.zeros(2, dtype=torch.int32), torch.zeros(1, 2), torch.zeros(2, 1),
    torch.zeros(2, 2), torch.zeros(2, 2).t(), torch.zeros(4)[::2], torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0),
    torch.tensor(0.0), torch.tensor([1 + 2j]), torch.tensor([1 + 2j]).conj(), [torch.zeros(2)], (torch.zeros(2),),
]  # fmt: skip


def test_different_values_have_different_keys() -> None:
    keys = [key(value) for value in DIFFERENT]

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).view(2, 3),
        lambda: torch.tensor([float("nan"), 1.0]),
        lambda: {"a": [torch.ones(2), 1.5], "b": (None, "x")},
        lambda: Config(names=["a", "b"]),
        lambda: np.arange(5)[::2],
        lambda: float("nan"),
        lambda: torch.arange(9)[3:6],
    ],
)
def test_equal_values_have_equal_keys(make: Any) -> None:
    one, other = key(make()), key(make())

    assert one == other and hash(one) == hash(other)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "set"),
        (object(), "object"),
        (torch.nn.Linear(1, 1), "Linear"),
        (torch.nn.Parameter(torch.zeros(1)), "Parameter"),
        (torch.ones(1, requires_grad=True), "gradients"),
        (torch.ones(2, 2).to_sparse(), "sparse"),
        (torch.ones(2, device="meta"), "meta"),
        (np.array([None]), "objects"),
        (torch.Generator(), "Generator"),
        (len, "builtin"),
        (Odd(), "__len__"),
        (iter([1]), "iterator"),
        (Computed(), "Computed"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_name(value: Any, why: str) -> None:
    with pytest.raises(Unkeyable, match=f"value cannot be compared: .*{why}"):
        key([value])


def test_a_tensor_that_carries_something_is_refused() -> None:
    tensor = torch.zeros(1)
    tensor.mask = torch.ones(1)  # type: ignore[attr-defined]

    with pytest.raises(Unkeyable, match="attributes of its own"):
        key(tensor)


def test_a_list_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(Unkeyable, match="too deep"):
        key(endless)


@given(
    st.integers(1, 70_000), st.integers(0, 8), st.integers(0, 2**32), st.sampled_from([torch.uint8, torch.int16])
)  # fmt: skip
def test_sums_differ_where_one_bit_does(count: int, offset: int, place: int, dtype: torch.dtype) -> None:
    one = torch.arange(count + offset).to(dtype)[offset:]
    other = one.clone()
    flat = bits(torch, other)
    flat[place % flat.numel()] ^= 1
    by_sums = contents(most_bytes=lambda kind: 0)

    keys = [by_sums.key([("x", tensor)]) for tensor in (one, one.clone(), other)]

    assert keys[0] == keys[1] != keys[2]
    (row,) = by_sums.large
    assert same_bits(torch, row, flat) and not same_bits(torch, row, bits(torch, one))


def test_properties_that_only_compute_are_of_the_content() -> None:
    assert refusal_of_class(Config, {"double", "inner", "names", "shape"}) is None
    assert "append" in english(refusal_of_class(Config, {"counted"}) or "")
    assert "more than its object" in english(refusal_of_class(Config, {"of_global"}) or "")
    assert "area is a function" in english(refusal_of_class(Config, {"area"}) or "")
    assert refusal_of_class(Colour, {"value", "name"}) is None
    assert refusal_of_class(Point, {"x"}) is None
    assert refusal_of_class(argparse.Namespace, {"radius"}) is None
    assert "computes" in english(refusal_of_class(Computed, set()) or "")


def test_a_path_is_followed_through_plain_attributes() -> None:
    class Engine(torch.nn.Module):
        limit = 5

        def __init__(self) -> None:
            super().__init__()
            self.config = Config()
            self.register_buffer("window", torch.ones(3))
            self.layer = torch.nn.Linear(1, 1)

    engine = Engine()

    assert value_at(torch, engine, ("config", "inner", "radius")) == 3
    assert value_at(torch, engine, ("config", "double")) is engine.config
    assert value_at(torch, engine, ("window", "shape")) is engine.window
    assert value_at(torch, engine, ("limit",)) == 5
    assert value_at(torch, engine, ("layer", "weight")) is engine
    assert value_at(torch, engine, ("eval",)) is engine


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 1000))
def test_no_more_is_kept_than_a_tenth_of_what_is_free(sizes: list[int], free: int) -> None:
    room = MemoryRoom(lambda kind: free - room.taken_bytes if kind == "cpu" else None)

    taken = [size for size in sizes if room.take({"cpu": size})]

    assert sum(taken) == room.taken_bytes <= 0.1 * free
    assert not room.take({"cuda": 1})
