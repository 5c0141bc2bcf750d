"""The random generators that a dataset holds itself, in its attributes and transforms: has one of them been drawn from?

A sample that is flipped every other time looks the same in one of two readings; the generator has moved on in both.
"""

from __future__ import annotations

import pickle
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .reads import globals_of, is_of_library, settings_of

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
_DEEPEST = 6
_MOST_PARTS = 200


class OwnGenerators:
    def __init__(self, dataset: Any) -> None:
        self._found = list({id(one): one for one in _found(dataset, _DEEPEST, set())}.values())

    def states(self) -> list[bytes]:
        return [
            bytes(one.get_state().numpy()) if isinstance(one, torch.Generator) else pickle.dumps(one)
            for one in self._found
        ]


def _found(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, _KINDS):
        yield value
    if not depth or id(value) in seen or isinstance(value, (int, str, bytes, torch.Tensor, np.ndarray)):
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _found(part, depth - 1, seen)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value[:_MOST_PARTS]
    elif isinstance(value, dict):
        yield from list(value.values())[:_MOST_PARTS]
    elif isinstance(value, types.FunctionType):
        yield from (one for _, one in globals_of(value.__code__, value.__globals__))
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType())
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        yield from list(vars(value).values())[:_MOST_PARTS]
        for kind in type(value).__mro__:
            if not is_of_library(sys.modules.get(kind.__module__)):
                yield from (one for _, one in settings_of(kind))
