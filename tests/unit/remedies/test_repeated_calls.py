"""Tensors are found in whatever a model returns, and what holds them keeps its class."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from flatout.remedies.model.repeated_calls import map_tensors

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Output:
    value: Tensor
    name: str


class Entries(OrderedDict[str, Any]):
    """Has its entries as attributes too, as the outputs of transformers do."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float()


_HALF = torch.ones(2, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("value", "inner"),
    [
        (_HALF, lambda one: one),
        ((1, _HALF), lambda one: one[1]),
        ([None, [_HALF]], lambda one: one[1][0]),
        (Pair(_HALF, "x"), lambda one: one.left),
        ({"a": {"b": _HALF}}, lambda one: one["a"]["b"]),
        (Output(_HALF, "x"), lambda one: one.value),
        (Entries(logits=_HALF), lambda one: one.logits),
    ],
    ids=["tensor", "tuple", "list", "named tuple", "dict", "dataclass", "class of its own"],
)
def test_every_tensor_is_changed_and_the_given_value_is_not(value: Any, inner: Any) -> None:
    changed = map_tensors(torch, value, _wide)

    assert type(changed) is type(value)
    assert inner(changed).dtype is torch.float32
    assert inner(value).dtype is torch.bfloat16


def test_what_needs_no_change_is_the_same_object() -> None:
    value = {"a": (torch.ones(1), "x"), "b": object()}

    assert map_tensors(torch, value, lambda tensor: tensor) is value
