"""A loader that got workers is fed as `flatout.DataLoader` is: sample by sample, in the same order, tuned as it runs.

That needs samples that are the same whoever reads them, and a loader that iterates as torch's does. Others get torch's
own workers.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any

from ..site import Site
from .kept import are_kept, renew_if_changed
from .looking import Look, look
from .randomness import said

# On a loader: what was added to it, and what its iterators share.
_ADDED = "_flatout_added"
_FEED = "_flatout_feed"
# A batch that is made in less is not worth the way from a worker.
_CHEAP_BATCH_S = 0.001
# Before the training's own pace is known: workers for one that wants a batch so often.
_QUICK_STEP_S = 0.010


@dataclass(slots=True)
class Added:
    """Workers given to one loader. `place`: where the script makes it."""

    before: int
    place: str
    is_decided: bool = False


def note_added(arguments: dict[str, Any], before: int, place: str) -> None:
    vars(arguments["self"])[_ADDED] = Added(before, place)


class Adopting:
    """Decides, when a loader with added workers is first gone through, how it is fed."""

    def __init__(self, site: Site, tunes: bool, most: int) -> None:
        self._site = site
        self._tunes = tunes
        self._most = most
        # Scripts make a loader again over the same data: {id: (the dataset, what was seen, workers found)}
        self._known: dict[int, tuple[weakref.ref[Any], Look, int]] = {}

    def install(self, loader_class: Any) -> None:
        def make(original: Any) -> Any:
            def _get_iterator(loader: Any) -> Any:
                feed = vars(loader).get(_FEED)
                if feed is None or not self._site.in_force or _why_not_fed(loader) is not None:
                    return original(loader)
                return feed.make_iterator(loader)

            return _get_iterator

        self._site.replace(loader_class, "_get_iterator", make)
        self._class = loader_class

    def begin(self, loader: Any) -> None:
        """An epoch of any loader begins."""
        added = vars(loader).get(_ADDED)
        if added is not None and not added.is_decided:
            added.is_decided = True
            self._decide(loader, added)
        renew_if_changed(loader)
        feed = vars(loader).get(_FEED)
        if feed is not None:
            feed.epoch += 1

    def _decide(self, loader: Any, added: Added) -> None:
        looked, found = self._look(loader.dataset)
        if not self._tunes:
            self._tell_of(looked, by_place=False)
            if looked.is_repeatable and self._iterates_as_torch(loader):
                self._adopt(loader, added, looked)
            return
        batch = loader.batch_size or 1
        if looked.sample_s is not None and batch * looked.sample_s < _CHEAP_BATCH_S:
            loader.num_workers = added.before
            took_ms = 1e3 * batch * looked.sample_s
            self._site.tell(**{added.place: f"num_workers stays {added.before}: a batch takes {took_ms:.2g} ms"})
            return
        batches = _length(loader)
        loader.num_workers = added.before or found or self._guess(looked, batch, batches)
        adopts = self._iterates_as_torch(loader) and bool(looked.same)
        self._tell_of(looked, by_place=adopts)
        if adopts:
            self._adopt(loader, added, looked, batches)
        self._tell_workers(id(loader.dataset), added, loader.num_workers)

    def _look(self, dataset: Any) -> tuple[Look, int]:
        """What was seen of it, and how many workers an earlier loader over it came to, 0 for none."""
        known = self._known.get(id(dataset))
        if known is None or known[0]() is not dataset:
            try:
                known = (weakref.ref(dataset), look(self._site.torch, dataset), 0)
            except TypeError:  # a plain list
                return look(self._site.torch, dataset), 0
            self._known[id(dataset)] = known
        return known[1], known[2]

    def _guess(self, looked: Look, batch: int, batches: int | None) -> int:
        """As many as make a batch in the time of a quick step, as far as the processors and an epoch's batches go."""
        wanted = math.ceil(batch * looked.sample_s / _QUICK_STEP_S) if looked.sample_s is not None else self._most
        return max(1, min(wanted, self._most, batches or self._most))

    def _iterates_as_torch(self, loader: Any) -> bool:
        """One that overrides this may do anything with what it gets."""
        kind = type(loader)
        own = (kind.__iter__, kind._get_iterator, kind._index_sampler)
        return own == (self._class.__iter__, self._class._get_iterator, self._class._index_sampler)

    def _adopt(self, loader: Any, added: Added, looked: Look, batches: int | None = None) -> None:
        from ...feed.feeding import Feed

        if _why_not_fed(loader) is not None:
            return
        feed = Feed("sample" if looked.draws else "worker", compensate=are_kept(loader))
        if self._tunes:
            feed.tune(loader, loader.num_workers, batches)
            # Without the loader: its workers are to go when the script lets go of it.
            key = id(loader.dataset)
            feed.on_workers = lambda workers: self._tell_workers(key, added, workers)
        vars(loader)[_FEED] = feed

    def _tell_workers(self, key: int, added: Added, workers: int) -> None:
        known = self._known.get(key)
        if known is not None:
            self._known[key] = (known[0], known[1], workers)
        self._site.tell(**{added.place: f"num_workers {added.before} → {workers}"})

    def _tell_of(self, looked: Look, by_place: bool) -> None:
        told = said(looked, by_place)
        if told:
            self._site.tell(randomness=told)


def _why_not_fed(loader: Any) -> str | None:
    from ...feed.feeding import why_not_fed

    return why_not_fed(loader)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None
