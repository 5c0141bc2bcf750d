"""Keeps samples in memory that all workers and ranks of the machine share.

A sample is loaded once and then copied from there: the same bytes. Only what does not change from epoch to epoch is
kept: samples that draw random numbers are not, from torch's, numpy's and Python's generators or from those the dataset
holds; but where it has a list of transforms, what comes before the first random one is. A dataset that the script
changes (labels, settings, a global that it reads) is read as it is from the next epoch on. The budget holds for the
machine, not for each worker; by default it is half of the memory that is free. What does not fit is loaded as before.
Datasets that cannot be kept are left alone, and that is told.
"""

from __future__ import annotations

from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Site, join_reasons
from ..traits import Bottleneck, Traits
from ..values import Choice, Options, Size, Text
from .arguments import when_loader_made

ID = "loader.cache"
TITLE = "Samples are kept in memory that all workers share"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.LOADING, feeds_batches=True)
VALUE = Options(
    {
        "budget": Size(),
        "policy": Choice(("keep", "lru", "clairvoyant")),
        "spill": Text(r".+", "a folder on a local disk"),
    }
)

applies = by_finding(ID, message("cache.not_needed"), value={})


def apply(site: Site, value: Any) -> None:
    options = {name: item for name, item in value.items() if item != "auto"}
    wrapped: list[Any] = []

    def change(loader: Any) -> Message | None:
        from ...feed.cache.dataset import is_cached, wrap

        if not hasattr(loader.dataset, "__getitem__"):
            return None
        told: list[Message] = []
        wrap(loader, options, told.append)
        if is_cached(loader.dataset):
            wrapped.append(loader)
            told.insert(0, message("cache.set"))
        return join_reasons(told) if told else None

    def unwrap_all() -> None:
        from ...feed.cache.dataset import unwrap

        for loader in wrapped:
            unwrap(loader)
        wrapped.clear()

    when_loader_made(site, change)
    site.undo(unwrap_all)
