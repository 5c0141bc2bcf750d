"""Changes what a DataLoader is made with, or the loader once it is made. Shared by the remedies of the loader.

Arguments are bound by torch's own signature: subclasses pass them by place as well as by name. The remedy applied last
sees them first: that is loader.workers, by its name, so that the others know whether there are workers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..places import caller
from ..site import Site

# Gets the arguments by name and changes them; what it gives back is told, None where the loader is left as it is.
Change = Callable[[dict[str, Any]], str | None]


class LeftAlone(Exception):
    """This one loader cannot be changed; the words say why."""


def change_arguments(site: Site, change: Change) -> None:
    """Let `change` see the arguments of every DataLoader made from now on."""
    site.after_import("torch.utils.data.dataloader", lambda module: _install(site, module.DataLoader, change))


def _install(site: Site, loader_class: Any, change: Change) -> None:
    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            if not site.in_force:
                return original(loader, *args, **kwargs)  # type: ignore[no-any-return]

            def changed() -> inspect.BoundArguments:
                bound = signature.bind(loader, *args, **kwargs)
                bound.apply_defaults()
                _change(site, change, bound.arguments)
                return bound

            try:
                signature.bind(loader, *args, **kwargs)
            except TypeError:
                # The user's mistake: torch says so.
                return original(loader, *args, **kwargs)  # type: ignore[no-any-return]
            bound = site.guarded(changed, lambda: signature.bind(loader, *args, **kwargs))
            original(*bound.args, **bound.kwargs)
            return None

        return __init__

    site.replace(loader_class, "__init__", make)


def _change(site: Site, change: Change, arguments: dict[str, Any]) -> None:
    place = caller(site.torch)
    try:
        told = change(arguments)
    except LeftAlone as left:
        told = f"left alone: {left}"
    if told is not None:
        site.tell(**{place: told})


def when_made(site: Site, change: Callable[[Any], str | None]) -> None:
    """Let `change` see every DataLoader that was made; what it gives back is told."""
    site.after_import("torch.utils.data.dataloader", lambda module: _install_after(site, module.DataLoader, change))


def _install_after(site: Site, loader_class: Any, change: Callable[[Any], str | None]) -> None:
    def make(original: Any) -> Any:
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            if site.in_force:
                place = caller(site.torch)
                told = site.guarded(lambda: change(loader), lambda: None)
                if told is not None:
                    site.tell(**{place: told})

        return __init__

    site.replace(loader_class, "__init__", make)
