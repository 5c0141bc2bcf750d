"""The caches this process has open. They stay open while it lives: loaders made anew every epoch find them warm."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .clairvoyant import Clairvoyant, foreseen_hits
from .keep import Keep
from .lru import Lru
from .place import Place, may_take
from .plan import PlanWatch, publish
from .policy import MOST_WORTH, Policy
from .segment import Segment, Word, open_segment
from .table import Field, Table

POLICIES = ("keep", "lru", "clairvoyant")
_tables: dict[str, SharedTable] = {}


class SharedTable(Table):
    """A table, its segment, its plan, and the datasets of this process that use it."""

    def __init__(self, segment: Segment, policy: str) -> None:
        self.segment = segment
        self.samples = segment.samples
        self.plans = PlanWatch(segment)
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(segment, self.made(policy), may_take)

    def made(self, policy: str) -> Policy:
        makers: dict[str, Callable[[], Policy]] = {
            "keep": Keep,
            "lru": Lru,
            "clairvoyant": lambda: Clairvoyant(self.plans),
        }
        return makers[policy]()

    def change_policy(self, policy: str) -> None:
        if self.policy.name != policy:
            self.use(self.made(policy))

    def foresee(self, order: Sequence[int], sample_bytes: float, chances: Any = None) -> None:
        """The samples will be read in this order from now on, by all processes together."""
        words = self.segment.words
        places = int(words[Word.DATA_BYTES] / max(1.0, sample_bytes))
        hits, again = foreseen_hits(order, places, self.kept(), self.seen())
        words[Word.FORESEEN_HITS] += hits
        words[Word.FORESEEN_AGAIN] += again
        publish(self.segment, order, int(Field.WORTH), MOST_WORTH, chances)

    def release(self) -> None:
        self.forget_views()
        self.segment.close()


def open_table(place: Place) -> SharedTable:
    """Raises Unavailable."""
    path = os.path.join(place.folder, place.name)
    table = _tables.get(path)
    if table is None:
        segment = open_segment(place.folder, place.name, place.samples, place.budget_bytes)
        table = _tables[path] = SharedTable(segment, place.policy)
    else:
        table.change_policy(place.policy)
    return table


def release_unused() -> bool:
    """Give back the memory of caches whose datasets are gone; were there any?"""
    unused = [path for path, table in _tables.items() if not table.users]
    for path in unused:
        _tables.pop(path).release()
    return bool(unused)


def release_all() -> None:
    """The last process out frees the memory."""
    while _tables:
        _tables.popitem()[1].release()


atexit.register(release_all)
