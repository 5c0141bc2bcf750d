"""A loader that got workers is fed as `flatout.DataLoader` is: sample by sample, in the same order, tuned as it runs.

That needs samples that are the same whoever reads them, and a loader that iterates as torch's does. Others get torch's
own workers; those whose batches would be others by that, beyond what they draw, get none.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..site import Site
from .as_made import put_back, record
from .found_before import found_before
from .kept import are_kept, do_not_keep, had_no_workers, own, renew_where_needed
from .looking import Look
from .looks import Looks
from .randomness import BY_PLACE, OTHER_BATCHES, OTHER_NUMBER, others, said
from .streams import is_stream, why_not_again

# On a loader: what was added to it, and what its iterators share.
_ADDED = "_flatout_added"
_FEED = "_flatout_feed"
# A batch that is made in less is not worth the way from a worker, where the script has none.
_CHEAP_BATCH_S = 0.001
# Before the training's own pace is known: workers for one that wants a batch so often.
_QUICK_STEP_S = 0.010


@dataclass(slots=True)
class Added:
    """Workers given to one loader. `place`: where the script makes it, and which of those it makes there."""

    before: int
    place: str
    is_decided: bool = False


def note_added(arguments: dict[str, Any], place: str, remedy: str) -> None:
    """Before the loader that is just being made gets other workers than the script gives it."""
    before = arguments["num_workers"]
    record(arguments, "num_workers", "prefetch_factor")
    own(arguments, remedy)
    vars(arguments["self"])[_ADDED] = Added(before, place)


class Adopting:
    """Decides, when a loader with added workers is first gone through, how it is fed."""

    def __init__(self, site: Site, tunes: bool, most: int) -> None:
        self._site = site
        self._tunes = tunes
        self._most = most
        self._looks = Looks(site.torch)
        # Scripts make a loader again over the same data: {id: (the dataset, workers found)}
        self._found: dict[int, tuple[Callable[[], Any], int]] = {}
        # One line may make the loaders of training and evaluation: {line: the kinds it has made}
        self._kinds: dict[str, list[tuple[object, ...]]] = {}

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
        if added is None:
            return
        if not added.is_decided:
            added.is_decided = True
            added.place = self._told_apart(loader, added)
            self._decide(loader, added)
        renew_where_needed(self._site, loader)
        feed = vars(loader).get(_FEED)
        if feed is not None:
            feed.epoch += 1

    def _told_apart(self, loader: Any, added: Added) -> str:
        """The line, with a number where it has made another kind of loader before. One made again is no other kind."""
        kinds = self._kinds.setdefault(added.place, [])
        how = (type(loader.dataset), type(loader.sampler), loader.batch_size, loader.drop_last, added.before)
        if how not in kinds:
            kinds.append(how)
        number = kinds.index(how) + 1
        return added.place if number == 1 else f"{added.place} ({number})"

    def _decide(self, loader: Any, added: Added) -> None:
        looked = self._looks.at(loader)
        if looked.why_no_workers is not None:
            self._leave_alone(loader, added, looked.why_no_workers)
            return
        why_not_kept = why_not_again(loader.dataset) if is_stream(loader) else looked.why_not_kept
        if are_kept(loader) and why_not_kept is not None:
            do_not_keep(loader)
        if self._tunes:
            self._decide_by_cost(loader, added, looked)
            return
        self._tell_of(loader, looked, OTHER_NUMBER)
        if looked.is_repeatable and self._iterates_as_torch(loader):
            self._adopt(loader, added, looked)

    def _decide_by_cost(self, loader: Any, added: Added, looked: Look) -> None:
        batch = loader.batch_size or 1
        if not added.before and looked.sample_s is not None and batch * looked.sample_s < _CHEAP_BATCH_S:
            _put_workers_back(loader)
            took_ms = 1e3 * batch * looked.sample_s
            self._site.tell(**{added.place: f"num_workers stays 0: a batch takes {took_ms:.2g} ms"})
            return
        batches = _length(loader)
        found = found_before(added.place)
        begins_with = found or added.before or self._found_for(loader.dataset)
        loader.num_workers = begins_with or self._guess(looked, batch, batches)
        adopts = self._iterates_as_torch(loader) and bool(looked.same)
        self._tell_of(loader, looked, BY_PLACE if adopts else OTHER_NUMBER)
        if adopts:
            self._adopt(loader, added, looked, batches, is_found=found is not None)
        self._tell_workers(loader, added, loader.num_workers)

    def _leave_alone(self, loader: Any, added: Added, why: str) -> None:
        _put_workers_back(loader)
        if are_kept(loader):
            do_not_keep(loader)
        self._site.tell(**{added.place: f"left alone: {why}"})

    def _found_for(self, dataset: Any) -> int:
        """How many workers an earlier loader over it came to, 0 for none."""
        found, workers = self._found.get(id(dataset), (lambda: None, 0))
        return workers if found() is dataset else 0

    def _guess(self, looked: Look, batch: int, batches: int | None) -> int:
        """As many as make a batch in the time of a quick step, as far as the processors and an epoch's batches go."""
        wanted = math.ceil(batch * looked.sample_s / _QUICK_STEP_S) if looked.sample_s is not None else self._most
        return max(1, min(wanted, self._most, batches or self._most))

    def _iterates_as_torch(self, loader: Any) -> bool:
        """One that overrides this may do anything with what it gets."""
        kind = type(loader)
        own = (kind.__iter__, kind._get_iterator, kind._index_sampler)
        return own == (self._class.__iter__, self._class._get_iterator, self._class._index_sampler)

    def _adopt(
        self, loader: Any, added: Added, looked: Look, batches: int | None = None, is_found: bool = False
    ) -> None:
        from ...feed.feeding import Feed
        from .torchs_own import comes_to_its_end_drawing

        if _why_not_fed(loader) is not None:
            return
        late = had_no_workers(loader)
        draws = looked.draws or looked.collate_draws
        feed = Feed("sample" if draws else "worker", compensate=are_kept(loader), draws_late=late)
        feed.last_in_turn = late and comes_to_its_end_drawing(loader._index_sampler)
        feed.on_random = lambda: self._site.tell(randomness=others("some samples or batches", OTHER_NUMBER))
        feed.known_workers = added.before
        feed.on_short = lambda done: self._site.tell(memory=done)
        feed.on_renumbered = lambda: self._site.tell(worker_ids=_shared(added.before))
        if self._tunes:
            feed.tune(loader, loader.num_workers, batches, is_found)
            # Without the loader: its workers are to go when the script lets go of it.
            found = weakref.ref(loader)
            feed.on_workers = lambda workers: self._tell_workers(found(), added, workers)
        vars(loader)[_FEED] = feed

    def _tell_workers(self, loader: Any, added: Added, workers: int) -> None:
        if loader is not None:
            try:
                self._found[id(loader.dataset)] = (weakref.ref(loader.dataset), workers)
            except TypeError:
                pass  # a plain list
        self._site.tell(**{added.place: f"num_workers {added.before} → {workers}"})

    def _tell_of(self, loader: Any, looked: Look, why: str) -> None:
        self._site.tell(randomness=said(looked, why, is_stream(loader)))
        if is_stream(loader):
            self._site.tell(order=OTHER_BATCHES)
        if looked.changes is not None:
            name = f"{type(loader.dataset).__name__}.{looked.changes}"
            self._site.tell(dataset=f"{name} changes as samples are read: each worker has its own")


def _shared(before: int) -> str:
    if not before:
        return "in workers get_worker_info() is None: samples failed otherwise"
    known = "0" if before == 1 else f"0 to {before - 1}"
    return f"further workers share the numbers {known}, which the script expects: samples failed with others"


def _put_workers_back(loader: Any) -> None:
    """Before its first workers are started."""
    put_back(loader, "num_workers", "prefetch_factor")
    if not loader.num_workers and are_kept(loader):
        do_not_keep(loader)


def _why_not_fed(loader: Any) -> str | None:
    from ...feed.feeding import why_not_fed

    return why_not_fed(loader)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None
