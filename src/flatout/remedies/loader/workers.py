"""Makes batches in worker processes: `num_workers`, whatever the script says.

Same samples in the same order: the order is drawn when the first batch is asked for, as it is without workers. Samples
that are the same whoever reads them are handed to workers one by one, as `flatout.DataLoader` does, so that a slow one
holds up nothing behind it. Random transforms draw from generators of the workers' own, as they would if the script set
it; the run's record says so where a sample or the collate function was seen to draw. An IterableDataset that shares its
samples out among workers gives other batches, and that is told. Loaders that workers would break, make repeat samples
or see others (an IterableDataset that is not sharded, a dataset on the GPU, what cannot be pickled for a spawned
worker, samples that depend on how many were read before, a sampler that draws with every batch) are left alone, and
that is told. Where a sample fails in a worker that the script did not ask for, it is read again with a worker's number
that the script expects: datasets with room for their own workers only go on, and the record says so.

"auto" measures: a child process times a few samples; cheap ones get no workers where they had none. The rest begin
with as many as a quick training step would need, at most the processors this process may use less one for the training
itself, shared by the ranks of the machine, and no more than an epoch has batches. Then the number follows the pace of
the training while it runs. The workers live from one epoch to the next; the draw that starting them would make is made
all the same. Random transforms are then seeded by a sample's place in the epoch, not by worker. Batches come in memory
that is used again: torch's loader takes fresh memory for each one, which the process that trains has to free. When the
machine's memory runs short, workers that the script did not ask for are renewed, so that what datasets keep in each of
them goes; where that does not help there are fewer, and that is told.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Knob, SelfTuning, Traits
from ..user_code import caller
from ..values import Count
from .arguments import (
    LeftAlone,
    change_arguments,
    install_copy_as_made,
    left_alone,
    record_arguments,
    restore_arguments,
    restore_when_undone,
)
from .persistent import (
    draw_as_before,
    had_no_workers,
    has_kept_workers,
    keep_workers,
    release_kept_workers,
    renew_workers,
    set_owner,
)
from .probe import (
    BY_PLACE,
    OTHER_BATCHES,
    OTHER_NUMBER,
    LoaderProbe,
    LoaderProbes,
    describe_randomness,
    draws_others,
    is_stream,
    why_not_repeatable,
)

ID = "loader.workers"
# What is told of a loader that got workers: the number `before` and `after`.
WORKERS_SET = "workers.set"
TITLE = "Batches are made in worker processes"
SAFETY = "lossless"
VALUE = Count(0, 1024, auto=True)
# Workers that wait for storage need no processor, so more of them than processors may help.
_WORKERS_PER_PROCESSOR = 2


def _numbers_to_try(is_alone: bool) -> tuple[int, ...]:
    """Beside other knobs a ladder will do: each step of it is a factor in the number of settings."""
    from ...feed.machine import processors

    most = max(2, math.floor(processors()) * _WORKERS_PER_PROCESSOR)
    ladder = sorted({0, most, *(2**n for n in range(most.bit_length()) if 2**n <= most)})
    return tuple(range(most + 1)) if is_alone else tuple(ladder)


TRAITS = Traits(
    Bottleneck.LOADING,
    feeds_batches=True,
    self_tuning=SelfTuning("auto", most=64),
    knob=Knob(("workers", "num_workers"), "num_workers", _numbers_to_try),
)

applies = by_finding(ID, message("workers.keep_up"), evidence="workers", value="auto")


def apply(site: Site, value: Any) -> None:
    from ...feed.machine import workers_allowed

    torch = site.torch
    tunes = value == "auto"
    # Above this many, workers take the processors from each other and from the training.
    most = workers_allowed(os.environ)
    adopting = LoaderAdoption(site, tunes, most)
    remember = restore_when_undone(site, "num_workers", "prefetch_factor", "persistent_workers")

    def give(arguments: dict[str, Any], workers: int) -> None:
        if workers:
            refuse_hazards(torch, arguments)
        mark_added_workers(arguments, caller(torch), ID)
        remember(arguments["self"])
        arguments["num_workers"] = workers

    def change(arguments: dict[str, Any]) -> Message | None:
        before = arguments["num_workers"]
        if tunes:
            give(arguments, before or most)  # for now
            keep_workers(arguments, ID)
            return None
        if before == value:
            return None
        needs_workers = ("timeout", "persistent_workers", "prefetch_factor")
        if not value and any(arguments.get(name) for name in needs_workers):
            raise LeftAlone(message("workers.settings_need_workers"))
        give(arguments, value)
        return message("workers.set", before=before, after=value)

    def install(module: Any) -> None:
        draw_as_before(site, module, ID)
        install_copy_as_made(site, module.DataLoader)
        adopting.install(module.DataLoader)
        site.before(module.DataLoader, "__iter__", adopting.begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)


# A loader that got workers is fed as `flatout.DataLoader` is: sample by sample, in the same order, tuned while it
# runs. That needs samples that are the same whichever worker reads them, and a loader that iterates as torch's does.
# Others get torch's own workers; those whose batches would change get none.

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


def mark_added_workers(arguments: dict[str, Any], place: str, remedy: str) -> None:
    """Before the loader that is just being made gets other workers than the script gives it."""
    before = arguments["num_workers"]
    record_arguments(arguments, "num_workers", "prefetch_factor")
    set_owner(arguments, remedy)
    vars(arguments["self"])[_ADDED] = Added(before, place)


class LoaderAdoption:
    """Decides, when a loader with added workers is first gone through, how it is fed."""

    def __init__(self, site: Site, tunes: bool, most: int) -> None:
        self._site = site
        self._tunes = tunes
        self._most = most
        self._looks = LoaderProbes()
        # Scripts make a loader again over the same data: {id: (the dataset, workers found)}
        self._found: dict[int, tuple[Callable[[], Any], int]] = {}
        # One line may make the loaders of training and evaluation: {line: the kinds it has made}
        self._kinds: dict[str, list[tuple[object, ...]]] = {}

    def install(self, loader_class: Any) -> None:
        def make_iterator(original: Any, loader: Any) -> Any:
            feed = vars(loader).get(_FEED)
            if feed is None or _why_not_fed(loader) is not None:
                return original(loader)
            return feed.make_iterator(loader)

        self._site.around(loader_class, "_get_iterator", make_iterator)
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
        renew_workers(self._site, loader)
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
        why_not_kept = why_not_repeatable(loader.dataset) if is_stream(loader) else looked.why_not_kept
        if has_kept_workers(loader) and why_not_kept is not None:
            release_kept_workers(loader)
        if self._tunes:
            self._decide_by_cost(loader, added, looked)
            return
        self._tell_of(loader, looked, OTHER_NUMBER)
        if looked.is_repeatable and self._iterates_as_torch(loader):
            self._adopt(loader, added, looked)

    def _decide_by_cost(self, loader: Any, added: Added, looked: LoaderProbe) -> None:
        batch = loader.batch_size or 1
        if not added.before and looked.sample_s is not None and batch * looked.sample_s < _CHEAP_BATCH_S:
            _put_workers_back(loader)
            took_ms = 1e3 * batch * looked.sample_s
            self._site.tell(**{added.place: message("workers.stay_zero", batch_ms=took_ms)})
            return
        batches = _length(loader)
        found = workers_found_before(added.place)
        begins_with = found or added.before or self._found_for(loader.dataset)
        loader.num_workers = begins_with or self._guess(looked, batch, batches)
        adopts = self._iterates_as_torch(loader) and bool(looked.same)
        self._tell_of(loader, looked, BY_PLACE if adopts else OTHER_NUMBER)
        if adopts:
            self._adopt(loader, added, looked, batches, is_found=found is not None)
        self._tell_workers(loader, added, loader.num_workers)

    def _leave_alone(self, loader: Any, added: Added, why: Message) -> None:
        _put_workers_back(loader)
        if has_kept_workers(loader):
            release_kept_workers(loader)
        self._site.tell(**{added.place: left_alone(why)})

    def _found_for(self, dataset: Any) -> int:
        """How many workers an earlier loader over it came to, 0 for none."""
        found, workers = self._found.get(id(dataset), (lambda: None, 0))
        return workers if found() is dataset else 0

    def _guess(self, looked: LoaderProbe, batch: int, batches: int | None) -> int:
        """As many as make a batch in the time of a quick step, as far as the processors and an epoch's batches go."""
        wanted = math.ceil(batch * looked.sample_s / _QUICK_STEP_S) if looked.sample_s is not None else self._most
        return max(1, min(wanted, self._most, batches or self._most))

    def _iterates_as_torch(self, loader: Any) -> bool:
        """One that overrides this may do anything with what it gets."""
        kind = type(loader)
        own = (kind.__iter__, kind._get_iterator, kind._index_sampler)
        return own == (self._class.__iter__, self._class._get_iterator, self._class._index_sampler)

    def _adopt(
        self, loader: Any, added: Added, looked: LoaderProbe, batches: int | None = None, is_found: bool = False
    ) -> None:
        from ...feed.feeding import Feed
        from .probe import may_draw_at_end

        if _why_not_fed(loader) is not None:
            return
        late = had_no_workers(loader)
        draws = looked.draws or looked.collate_draws
        feed = Feed("sample" if draws else "worker", compensate=has_kept_workers(loader), draws_late=late)
        feed.last_in_turn = late and may_draw_at_end(loader._index_sampler)
        feed.on_random = lambda: self._site.tell(randomness=draws_others("loader.some_draw", OTHER_NUMBER))
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
        self._site.tell(**{added.place: message("workers.set", before=added.before, after=workers)})

    def _tell_of(self, loader: Any, looked: LoaderProbe, why: Message) -> None:
        self._site.tell(randomness=describe_randomness(looked, why, is_stream(loader)))
        if is_stream(loader):
            self._site.tell(order=OTHER_BATCHES)
        if looked.changes is not None:
            name = f"{type(loader.dataset).__name__}.{looked.changes}"
            self._site.tell(dataset=message("workers.dataset_changes", attribute=name))


def _shared(before: int) -> Message:
    if not before:
        return message("workers.no_worker_info")
    return message("workers.shared_number" if before == 1 else "workers.shared_numbers", last=before - 1)


def _put_workers_back(loader: Any) -> None:
    """Before its first workers are started."""
    restore_arguments(loader, "num_workers", "prefetch_factor")
    if not loader.num_workers and has_kept_workers(loader):
        release_kept_workers(loader)


def _why_not_fed(loader: Any) -> str | None:
    from ...feed.feeding import why_not_fed

    return why_not_fed(loader)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


# Loaders for which workers would duplicate samples, fail, or hang.

_LOOKED_AT = 64


def refuse_hazards(torch: Any, arguments: dict[str, Any]) -> None:
    """Raises LeftAlone where workers would not do the same work."""
    # Not at the top: it imports torch, which the script may not have done yet.
    from ...feed.feeding import why_no_workers

    dataset = arguments["dataset"]
    if any(getattr(value, "is_cuda", False) for value in list(getattr(dataset, "__dict__", {}).values())[:_LOOKED_AT]):
        raise LeftAlone(message("workers.gpu_dataset"))
    start_method = _start_method(torch, arguments.get("multiprocessing_context"))
    why = why_no_workers(dataset, arguments.get("collate_fn"), arguments.get("worker_init_fn"), start_method)
    if why is not None:
        raise LeftAlone(why)


def _start_method(torch: Any, context: Any) -> str:
    if isinstance(context, str):
        return context
    if context is not None and hasattr(context, "get_start_method"):
        return str(context.get_start_method())
    return str(torch.multiprocessing.get_start_method())


# How many workers a loader ended up with in another run of the same script: a trial need not find that out again.

WORKERS_VARIABLE = "FLATOUT_WORKERS"


def workers_found_before(place: str) -> int | None:
    """Of the loader that is made at `place` ("loader.py:46", "loader.py:46 (2)")."""
    try:
        found = json.loads(os.environ.get(WORKERS_VARIABLE) or "{}").get(place)
        return int(found) if found else None
    except (ValueError, TypeError, AttributeError):
        return None
