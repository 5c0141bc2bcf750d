"""Workers that live on where the script's would start anew: what starting draws is drawn, what it would see is seen.

A new epoch asks the sampler and draws one number from the loader's generator for its workers; workers that are kept do
not. That is done all the same. Workers that are started see the dataset as it is then: where the script has changed it
since, new ones are started. And a loader with workers that live on has one iterator only: where the script still holds
one, as when it evaluates on its training loader in the middle of an epoch, that one goes on and a new one is made.
"""

from __future__ import annotations

import sys
from typing import Any

from ..site import Site
from .as_made import made_with, put_back, record
from .changed import fingerprint
from .heirs import heir_of, is_used_up
from .late import reset_late

# On a loader: which remedy keeps its workers, which one answers for what it draws, and what its dataset was like when
# the workers were started.
_KEPT_BY = "_flatout_kept_by"
_OWNER = "_flatout_owner"
_SEEN = "_flatout_dataset_seen"

_NEW_ONES = "started anew where the script still holds an iterator of the loader"


def keep(arguments: dict[str, Any], remedy: str) -> bool:
    """Have the loader that is just being made keep its workers; False where it does so by itself."""
    if arguments.get("persistent_workers") or not arguments["num_workers"]:
        return False
    record(arguments, "persistent_workers")
    arguments["persistent_workers"] = True
    vars(arguments["self"])[_KEPT_BY] = remedy
    own(arguments, remedy)
    return True


def do_not_keep(loader: Any) -> None:
    """Before its first workers are started."""
    del vars(loader)[_KEPT_BY]
    put_back(loader, "persistent_workers")


def are_kept(loader: Any) -> bool:
    """Not by the script's own wish."""
    return _KEPT_BY in vars(loader)


def own(arguments: dict[str, Any], remedy: str) -> None:
    """The remedy that changes a loader first answers for it."""
    vars(arguments["self"]).setdefault(_OWNER, remedy)


def is_owned(loader: Any, remedy: str) -> bool:
    return bool(vars(loader).get(_OWNER) == remedy)


def had_no_workers(loader: Any) -> bool:
    """As the script made it."""
    return made_with(loader).get("num_workers") == 0


def draw_as_before(site: Site, module: Any, remedy: str) -> None:
    """Of torch's own iterators, for the loaders that this remedy answers for."""
    torch = site.torch

    def make(original: Any) -> Any:
        def _reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not site.in_force or not is_owned(loader, remedy):
                return original(iterator, loader, first_iter)  # type: ignore[no-any-return]
            if not first_iter and are_kept(loader):
                # As an iterator that is made.
                iterator._sampler_iter = iter(iterator._index_sampler)
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            if had_no_workers(loader):
                return reset_late(original, iterator, loader, first_iter)
            return original(iterator, loader, first_iter)  # type: ignore[no-any-return]

        return _reset

    site.replace(module._MultiProcessingDataLoaderIter, "_reset", make)


def renew_where_needed(site: Site, loader: Any) -> None:
    """When an epoch begins: let the workers go if they would not do as new ones, or are at work for somebody else."""
    if not are_kept(loader):
        return
    seen, vars(loader)[_SEEN] = vars(loader).get(_SEEN), fingerprint(loader.dataset)
    if vars(loader)["_iterator"] is None:
        return
    if seen != vars(loader)[_SEEN] or _has_ended(loader._iterator):
        loader._iterator = None
    elif _references(loader) > _ITS_OWN:
        if is_used_up(loader._iterator):
            loader._iterator = heir_of(loader._iterator)
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
