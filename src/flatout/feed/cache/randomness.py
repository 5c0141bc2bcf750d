"""Does a dataset give the same sample every time? Only then may a sample be kept.

The same index is read twice under different states of the three generators a dataset commonly draws from. A dataset
that draws at all, from these or from one of its own, is refused even if the sample stays the same: another time it may
not, and not drawing would change what others draw after it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import random
import sys
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...records.message import Message, message
from ..seeding import moved_generator, random_states, seed_all, set_random_states
from .format import NotFlat, encode
from .key import globals_of, is_of_library, settings_of

_SEEDS = (20_011, 911_003)


@dataclass(frozen=True, slots=True)
class Determinism:
    """Whether samples are the same every time."""

    why_not: Message | None
    first_s: float = 0.0  # the least that reading a sample for the first time took


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Other states of torch's, numpy's and Python's generators; the ones before are put back."""
    before = random_states()
    seed_all(seed)
    try:
        yield
    finally:
        set_random_states(before)


def is_deterministic(dataset: Any, indices: Sequence[int]) -> Determinism:
    """Read each index twice and compare; the generators' states are as before afterwards."""
    first_s, generators = math.inf, OwnGenerators(dataset)
    for index in indices:
        seen: list[Any] = []
        for seed in _SEEDS:
            with seeded(seed):
                before, own_before = random_states(), generators.states()
                began_s = time.perf_counter()
                sample = dataset[index]
                first_s = first_s if seen else min(first_s, time.perf_counter() - began_s)
                drawn_from = moved_generator(before)
                if drawn_from is None and generators.states() != own_before:
                    drawn_from = message("cache.of_its_own")
            if drawn_from is not None:
                return Determinism(message("cache.draws", index=index, whose=drawn_from))
            try:
                encode(sample)
            except NotFlat as error:
                return Determinism(message("cache.sample_not_flat", index=index, why=error.why))
            # The next reading may well write into the same memory.
            seen.append(copy.deepcopy(sample))
        if not alike(seen[0], seen[1]):
            return Determinism(message("cache.sample_differs", index=index))
    return Determinism(None, first_s)


def alike(first: Any, second: Any) -> bool:
    """The same types, shapes and bytes all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(alike(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, dict):
        return list(first) == list(second) and all(alike(first[key], second[key]) for key in first)
    if callable(getattr(first, "tobytes", None)) and hasattr(first, "size"):
        # Arrays, numpy's scalars, and images.
        facts = [(a.size, *(str(getattr(a, name, "")) for name in ("mode", "dtype", "shape"))) for a in (first, second)]
        return facts[0] == facts[1] and bool(first.tobytes() == second.tobytes())
    try:
        a, b = encode(first), encode(second)
    except NotFlat:
        return False
    return a.nbytes == b.nbytes and all(bytes(x) == bytes(y) for x, y in zip(a.parts, b.parts, strict=True))


# Random generators that a dataset holds itself, in its attributes and transforms. A sample that is flipped every
# other time looks the same in one of two reads; the generator has moved in both.

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
_DEEPEST = 6
_MOST_PARTS = 200


class OwnGenerators:
    def __init__(self, dataset: Any) -> None:
        self._found = list({id(item): item for item in _find_generators(dataset, _DEEPEST, set())}.values())

    def states(self) -> list[bytes]:
        return [
            bytes(item.get_state().numpy()) if isinstance(item, torch.Generator) else pickle.dumps(item)
            for item in self._found
        ]


def _find_generators(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, _KINDS):
        yield value
    if not depth or id(value) in seen or isinstance(value, (int, str, bytes, torch.Tensor, np.ndarray)):
        return
    seen.add(id(value))
    for part in _parts(value):
        yield from _find_generators(part, depth - 1, seen)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value[:_MOST_PARTS]
    elif isinstance(value, dict):
        yield from list(value.values())[:_MOST_PARTS]
    elif isinstance(value, types.FunctionType):
        yield from (item for _, item in globals_of(value.__code__, value.__globals__))
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType())
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        yield from list(vars(value).values())[:_MOST_PARTS]
        for kind in type(value).__mro__:
            if not is_of_library(sys.modules.get(kind.__module__)):
                yield from (item for _, item in settings_of(kind))
