"""Goes through a loader under some remedies, or none, from the same random state; what comes of it can be compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from flatout.remedies.site import Site
from tests.unit.remedies.applied import applied, live_in_english, reason

SAMPLES, BATCH = 22, 4
AUTO: dict[str, Any] = {"loader.workers": "auto"}
TWO: dict[str, Any] = {"loader.workers": 2}
LIVING_ON: dict[str, Any] = {"loader.persistent": True}
ALL: dict[str, Any] = {**TWO, **LIVING_ON, "loader.prefetch": 3}


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return index, torch.full((2,), float(index))


class Mine(DataLoader[Any]):
    """Iterates its own way, so that it stays with torch's workers."""

    def __iter__(self) -> Any:
        return super().__iter__()


def batch_of(given: Any) -> list[Any]:
    """And the next random number: what draws too much or too little shows there."""
    return [given[0].tolist(), given[1].sum().item(), torch.rand(()).item(), random.random()]


def whole(loader: Any) -> list[Any]:
    return [len(loader), *([batch_of(batch) for batch in loader] for _ in range(3))]


def gone_through(
    way: Callable[[Any], list[Any]],
    profile: dict[str, Any],
    make: Callable[[], Any],
    told: dict[str, object] | None = None,
) -> list[Any]:
    """`told` gets what the remedies say."""
    sites: list[Site] = []
    with ExitStack() as stack:
        for name, value in sorted(profile.items()):  # loader.workers is applied last
            sites.append(stack.enter_context(applied(name, value)))
        torch.manual_seed(3)
        random.seed(3)
        numpy.random.seed(3)
        seen = way(make())
    for site in sites:
        assert reason(site) == ""
        (told if told is not None else {}).update(live_in_english(site))
    return seen
