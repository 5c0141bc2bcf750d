"""Keeps a loader's workers from one epoch to the next: `persistent_workers`.

A new epoch draws one number from the loader's generator for its workers; workers that are kept do not. That draw is
made all the same, so the order of samples and everything after it stays as it was. A dataset that the script has
changed since gets new workers, and so does a loader that is gone through while the script still holds an iterator of
it: that one goes on. Random transforms go on where the worker's generator stood instead of starting anew: the run's
record says so where samples were seen to draw. Left alone, with the reason: datasets that change as they are read.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from ...records.message import Message, message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Pauses, Traits
from ..user_code import caller
from .arguments import (
    arguments_as_made,
    change_arguments,
    install_copy_as_made,
    left_alone,
    record_arguments,
    restore_arguments,
    restore_when_undone,
)
from .probe import LIVE_ON, LoaderProbes, describe_randomness, fingerprint, is_stream, why_not_repeatable

ID = "loader.persistent"
TITLE = "Workers live on from one epoch to the next"
SAFETY = "lossless"
TRAITS = Traits(Bottleneck.LOADING, pauses=Pauses.BETWEEN_EPOCHS)
# On a loader: where the script makes it, until it was looked at.
_PLACE = "_flatout_to_be_kept"

applies = by_finding(ID, message("persistent.short"))


def apply(site: Site, value: Any) -> None:
    remember = restore_when_undone(site, "persistent_workers")
    deciding = _Deciding(site)

    def change(arguments: dict[str, Any]) -> Message | None:
        if not keep_workers(arguments, ID):
            return None
        remember(arguments["self"])
        vars(arguments["self"])[_PLACE] = caller(site.torch)
        return message("persistent.set")

    def install(module: Any) -> None:
        draw_as_before(site, module, ID)
        install_copy_as_made(site, module.DataLoader)
        site.before(module.DataLoader, "__iter__", deciding.begin)

    change_arguments(site, change)
    site.after_import("torch.utils.data.dataloader", install)


class _Deciding:
    """Looks at a loader when it is first gone through. One that got its workers from loader.workers is left to that."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._looks = LoaderProbes()

    def begin(self, loader: Any) -> None:
        if not has_kept_workers(loader) or not is_owned(loader, ID):
            return
        place = vars(loader).pop(_PLACE, None)
        if place is not None:
            self._decide(loader, place)
        renew_workers(self._site, loader)

    def _decide(self, loader: Any, place: str) -> None:
        looked = self._looks.at(loader)
        why = why_not_repeatable(loader.dataset) if is_stream(loader) else looked.why_not_kept
        if why is not None:
            release_kept_workers(loader)
            self._site.tell(**{place: left_alone(why)})
            return
        self._site.tell(randomness=describe_randomness(looked, LIVE_ON, is_stream(loader)))


# What starting workers draws is drawn, and what they would see is seen. A loader with workers that live on has one
# iterator only: one that the script still holds goes on, and a new one is made.

# On a loader: which remedy keeps its workers, which one answers for what it draws, and what its dataset was like when
# the workers were started.
_KEPT_BY = "_flatout_kept_by"
_OWNER = "_flatout_owner"
_SEEN = "_flatout_dataset_seen"

_NEW_ONES = message("loader.renewed_for_iterator")


def keep_workers(arguments: dict[str, Any], remedy: str) -> bool:
    """Have the loader that is just being made keep its workers; False where it does so by itself."""
    if arguments.get("persistent_workers") or not arguments["num_workers"]:
        return False
    record_arguments(arguments, "persistent_workers")
    arguments["persistent_workers"] = True
    vars(arguments["self"])[_KEPT_BY] = remedy
    set_owner(arguments, remedy)
    return True


def release_kept_workers(loader: Any) -> None:
    """Before its first workers are started."""
    del vars(loader)[_KEPT_BY]
    restore_arguments(loader, "persistent_workers")


def has_kept_workers(loader: Any) -> bool:
    """Not by the script's own wish."""
    return _KEPT_BY in vars(loader)


def set_owner(arguments: dict[str, Any], remedy: str) -> None:
    """The remedy that changes a loader first answers for it."""
    vars(arguments["self"]).setdefault(_OWNER, remedy)


def is_owned(loader: Any, remedy: str) -> bool:
    return bool(vars(loader).get(_OWNER) == remedy)


def had_no_workers(loader: Any) -> bool:
    """As the script made it."""
    return arguments_as_made(loader).get("num_workers") == 0


def draw_as_before(site: Site, module: Any, remedy: str) -> None:
    """Of torch's own iterators, for the loaders that this remedy answers for."""
    torch = site.torch

    def reset(original: Any, iterator: Any, loader: Any, first_iter: bool = False) -> None:
        is_ours = is_owned(loader, remedy)
        if is_ours and not first_iter and has_kept_workers(loader):
            # As an iterator that is made.
            iterator._sampler_iter = iter(iterator._index_sampler)
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        if is_ours and had_no_workers(loader):
            reset_without_drawing(original, iterator, loader, first_iter)
        else:
            original(iterator, loader, first_iter)

    site.around(module._MultiProcessingDataLoaderIter, "_reset", reset)


def renew_workers(site: Site, loader: Any) -> None:
    """When an epoch begins: let the workers go if they would not do as new ones, or are at work for somebody else."""
    if not has_kept_workers(loader):
        return
    seen, vars(loader)[_SEEN] = vars(loader).get(_SEEN), fingerprint(loader.dataset)
    if vars(loader)["_iterator"] is None:
        return
    if seen != vars(loader)[_SEEN] or _has_ended(loader._iterator):
        loader._iterator = None
    elif _references(loader) > _ITS_OWN:
        if is_exhausted(loader._iterator):
            loader._iterator = hand_over_workers(loader._iterator)
        else:
            loader._iterator = None
            site.tell(workers=_NEW_ONES)


def _has_ended(iterator: Any) -> bool:
    """One that failed cannot begin anew. flatout's own iterators replace workers that died."""
    of_torch = hasattr(iterator, "_index_queues")
    return iterator._shutdown or (of_torch and not all(worker.is_alive() for worker in iterator._workers))


def _references(loader: Any) -> int:
    return sys.getrefcount(vars(loader)["_iterator"])


class _Loader:
    def __init__(self) -> None:
        self._iterator = object()


# Counted rather than known: what a call adds differs between versions of Python.
_ITS_OWN = _references(_Loader())

# An exhausted iterator hands its workers to a new one where the script still holds it. Torch restarts the same
# iterator when workers persist: whoever held it since the last epoch would then take batches of the new one.


def is_exhausted(iterator: Any) -> bool:
    """It has given all its batches. One that was not asked for any yet has not."""
    own = getattr(iterator, "is_used_up", None)
    if own is not None:
        return bool(own)
    return "_next_data" not in vars(iterator) and bool(iterator._rcvd_idx >= iterator._send_idx)


def hand_over_workers(iterator: Any) -> Any:
    """Has its workers and all else that it had. The one it was stays at its end, and ends no workers."""
    heir = object.__new__(type(iterator))
    vars(heir).update(vars(iterator))
    iterator._shutdown = True
    if vars(heir).get("_worker_pids_set"):
        # torch knows by the iterator whose workers these are when one of them dies.
        import torch

        torch._C._remove_worker_pids(id(iterator))
        torch._C._set_worker_pids(id(heir), tuple(worker.pid for worker in heir._workers))
        iterator._worker_pids_set = False
        if heir._pin_memory and hasattr(heir, "_register_persistent_workers_atexit"):
            heir._register_persistent_workers_atexit()
    return heir


# Torch's own iterators, drawing as one without workers does: from the sampler when the first batch is asked for. With
# workers torch asks the sampler as soon as an iterator is made, and twice; what a script draws between that and its
# first batch would be different random numbers.

_NEXT = "_next_data"


def reset_without_drawing(original: Callable[..., None], iterator: Any, loader: Any, first_iter: bool) -> None:
    """`original` is torch's `_reset`. What the iterator has drawn from already is what it goes on with."""
    sampler, ahead = iterator._index_sampler, iterator._prefetch_factor
    vars(iterator).pop(_NEXT, None)
    iterator._index_sampler, iterator._prefetch_factor = _Begun(iterator._sampler_iter), 0
    try:
        original(iterator, loader, first_iter)
    finally:
        iterator._index_sampler, iterator._prefetch_factor = sampler, ahead
    # By a weak reference: an iterator that held itself would end its workers late.
    found = weakref.ref(iterator)
    vars(iterator)[_NEXT] = lambda: _first_of(found())


def _first_of(iterator: Any) -> Any:
    del vars(iterator)[_NEXT]
    for _ in range(iterator._prefetch_factor * iterator._num_workers):
        iterator._try_put_index()
    return iterator._next_data()


class _Begun:
    """A sampler whose iterator exists."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> Any:
        return self._entries
