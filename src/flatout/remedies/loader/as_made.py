"""What the script made a loader with. A copy of the loader is made with that, and so is the loader once all is undone.

A copy or a pickled loader may go anywhere: into a process where no remedy is in force, or beside a loader whose workers
it must not share. It is as it would be without us.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..site import Site

_AS_MADE = "_flatout_as_made"
TORCHS_PREFETCH = 2  # where there are workers
# What the remedies of the loader leave on one.
_MARKS = (
    "_flatout_added", "_flatout_feed", "_flatout_kept_by", "_flatout_to_be_kept", "_flatout_to_be_filled",
    "_flatout_owner", "_flatout_dataset_seen", _AS_MADE,
)  # fmt: skip


def record(arguments: dict[str, Any], *names: str) -> None:
    """Before these arguments of a loader that is just being made are changed."""
    made = vars(arguments["self"]).setdefault(_AS_MADE, {})
    for name in names:
        made.setdefault(name, arguments.get(name))


def made_with(loader: Any) -> dict[str, Any]:
    """Of what was changed, by name."""
    return dict(vars(loader).get(_AS_MADE, {}))


def put_back(loader: Any, *names: str) -> None:
    """Iterators that exist go on as they are; the next one is made as the script wants it."""
    made = made_with(loader)
    if made.get("num_workers") and made.get("prefetch_factor", 0) is None:
        made["prefetch_factor"] = TORCHS_PREFETCH
    # torch refuses to set some of them once a loader is made: nothing was started with them yet, or it is let go here.
    vars(loader).update({name: made[name] for name in names if name in made})
    if "persistent_workers" in names and "persistent_workers" in made:
        loader._iterator = None


def put_back_when_undone(site: Site, *names: str) -> Callable[[Any], None]:
    """Gives the function that is told of each loader."""
    known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def undo() -> None:
        for loader in list(known.values()):
            if "_iterator" in vars(loader):  # or its making has failed
                put_back(loader, *names)

    def remember(loader: Any) -> None:
        known[id(loader)] = loader

    site.undo(undo)
    return remember


def copy_as_made(site: Site, loader_class: Any) -> None:
    """For copy.copy, copy.deepcopy and pickle."""

    def make(original: Any) -> Any:
        def __reduce_ex__(loader: Any, protocol: Any) -> Any:
            reduced = original(loader, protocol)
            made = made_with(loader)
            if not made or not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
                return reduced
            state = {name: value for name, value in reduced[2].items() if name not in _MARKS} | made
            if state["num_workers"] and state["prefetch_factor"] is None:
                state["prefetch_factor"] = TORCHS_PREFETCH
            if "persistent_workers" in made:
                state["_iterator"] = None
            return (*reduced[:2], state, *reduced[3:])

        return __reduce_ex__

    site.replace(loader_class, "__reduce_ex__", make)
