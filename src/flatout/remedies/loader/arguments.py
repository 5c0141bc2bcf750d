"""Changes what a DataLoader is made with, or the loader once it is made. Shared by the remedies of the loader.

Arguments are bound by torch's own signature: subclasses pass them by place as well as by name. The remedy applied last
sees them first: that is loader.workers, by its name, so that the others know whether there are workers.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from ...feed.reasons import Reasoned
from ...records.message import Message
from ..site import Site
from ..user_code import caller

# Gets the arguments by name and changes them; what it gives back is told, None where the loader is left as it is.
Change = Callable[[dict[str, Any]], Message | None]

_LOADERS = "torch.utils.data.dataloader"

# What is told of a loader that stays as it is, and of one of which an argument has a new number.
LEFT_ALONE = "loader.left_alone"
ARGUMENT_SET = ("batch.set", "loader_prefetch.set", "workers.set")


class LeftAlone(Reasoned):
    """This one loader cannot be changed; the words say why."""


def left_alone(why: Message) -> Message:
    """What is told of a loader that stays as the script made it."""
    return Message(LEFT_ALONE, {"why": why})


def change_arguments(site: Site, change: Change) -> None:
    """Let `change` see the arguments of every DataLoader made from now on."""

    def make_loader(original: Any, *args: Any, **kwargs: Any) -> None:
        signature = inspect.signature(original)

        def changed() -> inspect.BoundArguments:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            _tell_of(site, change, bound.arguments)
            return bound

        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            # The user's mistake: torch says so.
            original(*args, **kwargs)
            return
        bound = site.guarded(changed, lambda: signature.bind(*args, **kwargs))
        original(*bound.args, **bound.kwargs)

    site.after_import(_LOADERS, lambda module: site.around(module.DataLoader, "__init__", make_loader))


def _tell_of(site: Site, change: Callable[[Any], Message | None], changed: Any) -> None:
    place = caller(site.torch)
    try:
        told = change(changed)
    except LeftAlone as left:
        told = left_alone(left.why)
    if told is not None:
        site.tell(**{place: told})


def when_loader_made(site: Site, change: Callable[[Any], Message | None]) -> None:
    """Let `change` see every DataLoader that was made; what it gives back is told."""

    def look(result: None, loader: Any, *args: Any, **kwargs: Any) -> None:
        _tell_of(site, change, loader)

    site.after_import(_LOADERS, lambda module: site.after(module.DataLoader, "__init__", look))


# The arguments as the script gave them. A copied or pickled loader is made with these, and so is the loader itself
# once a remedy is undone: a copy may go to a process without remedies, or next to a loader whose workers it must not
# share.

_AS_MADE = "_flatout_as_made"
TORCHS_PREFETCH = 2  # where there are workers
# What the remedies of the loader leave on one.
_MARKS = (
    "_flatout_added", "_flatout_feed", "_flatout_kept_by", "_flatout_to_be_kept", "_flatout_to_be_filled",
    "_flatout_owner", "_flatout_dataset_seen", _AS_MADE,
)  # fmt: skip


def record_arguments(arguments: dict[str, Any], *names: str) -> None:
    """Before these arguments of a loader that is just being made are changed."""
    made = vars(arguments["self"]).setdefault(_AS_MADE, {})
    for name in names:
        made.setdefault(name, arguments.get(name))


def arguments_as_made(loader: Any) -> dict[str, Any]:
    return dict(vars(loader).get(_AS_MADE, {}))


def restore_arguments(loader: Any, *names: str) -> None:
    """Iterators that exist go on as they are; the next one is made as the script wants it."""
    made = arguments_as_made(loader)
    if made.get("num_workers") and made.get("prefetch_factor", 0) is None:
        made["prefetch_factor"] = TORCHS_PREFETCH
    # torch refuses to set some of them once a loader is made: nothing was started with them yet, or it is let go here.
    vars(loader).update({name: made[name] for name in names if name in made})
    if "persistent_workers" in names and "persistent_workers" in made:
        loader._iterator = None


def restore_when_undone(site: Site, *names: str) -> Callable[[Any], None]:
    """Gives the function that is told of each loader."""
    known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def undo() -> None:
        for loader in list(known.values()):
            if "_iterator" in vars(loader):  # or its making has failed
                restore_arguments(loader, *names)

    def remember(loader: Any) -> None:
        known[id(loader)] = loader

    site.undo(undo)
    return remember


def install_copy_as_made(site: Site, loader_class: Any) -> None:
    """For copy.copy, copy.deepcopy and pickle."""

    def reduce(original: Any, loader: Any, protocol: Any) -> Any:
        reduced = original(loader, protocol)
        made = arguments_as_made(loader)
        if not made or not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
            return reduced
        state = {name: value for name, value in reduced[2].items() if name not in _MARKS} | made
        if state["num_workers"] and state["prefetch_factor"] is None:
            state["prefetch_factor"] = TORCHS_PREFETCH
        if "persistent_workers" in made:
            state["_iterator"] = None
        return (*reduced[:2], state, *reduced[3:])

    site.around(loader_class, "__reduce_ex__", reduce)
