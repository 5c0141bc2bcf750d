"""Where a loader stands in its data, so that a resumed run goes on with the very next batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from .seeding import set_states, states

VERSION = 1


class Skipping:
    """A sampler without its first entries, for the one epoch that is resumed."""

    def __init__(self, sampler: Any, entries: int) -> None:
        self._sampler = sampler
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        # The sampler's own `__iter__` runs now, as it does without us; what it gives is drawn when it is asked for.
        return _without(iter(self._sampler), self._take_entries())

    def _take_entries(self) -> int:
        return self._entries

    def stop(self) -> None:
        """From the next epoch on nothing is skipped."""
        self._entries = 0

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _without(entries: Iterator[Any], skipped: int) -> Iterator[Any]:
    return itertools.islice(entries, skipped, None)


def draw_first(iterator: Any) -> None:
    """Have an iterator without workers draw its first index now, as one with workers does."""
    entries = iterator._sampler_iter
    first = list(itertools.islice(entries, 1))
    iterator._sampler_iter = itertools.chain(first, entries)


def random_state(generators: list[torch.Generator]) -> dict[str, Any]:
    """All that a sampler may draw from."""
    return {"process": states(), "generators": [generator.get_state() for generator in generators]}


def set_random_state(generators: list[torch.Generator], state: dict[str, Any]) -> None:
    set_states(state["process"])
    for generator, saved in zip(generators, state["generators"], strict=True):
        generator.set_state(saved)
