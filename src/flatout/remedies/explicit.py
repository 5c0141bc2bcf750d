"""Notices when the script sets something of torch's itself: its own choice goes before a numeric remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .site import Site


class _Watched:
    """Stands for a descriptor of a settings module and tells of every value that is set."""

    def __init__(self, original: Any, told: Callable[[Any], None]) -> None:
        self._original = original
        self._told = told

    def __get__(self, holder: Any, kind: Any) -> Any:
        return self._original.__get__(holder, kind)

    def __set__(self, holder: Any, value: Any) -> None:
        self._told(value)
        self._original.__set__(holder, value)


def when_set(site: Site, holder: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told(value)` before `holder.name = value`. `holder` is a settings module such as torch.backends.cudnn."""
    kind = type(holder)
    original = kind.__dict__.get(name)
    if original is None or not hasattr(original, "__set__"):
        return
    watched = _Watched(original, told)
    setattr(kind, name, watched)

    def undo() -> None:
        if kind.__dict__.get(name) is watched:
            setattr(kind, name, original)

    site.undo(undo)


def when_attribute_set(site: Site, kind: type, names: tuple[str, ...], told: Callable[[Any], None]) -> None:
    """The same for a class whose `__setattr__` does the setting."""

    def make(original: Any) -> Any:
        def __setattr__(holder: Any, name: str, value: Any) -> None:
            if name in names and site.in_force:
                told(value)
            original(holder, name, value)

        return __setattr__

    site.replace(kind, "__setattr__", make)


def when_called(site: Site, owner: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told(first argument)` before `owner.name(…)`."""

    def make(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if site.in_force:
                told(next(iter((*args, *kwargs.values())), None))
            return original(*args, **kwargs)

        return call

    site.replace(owner, name, make)


def refuse_when_set(site: Site) -> Callable[[Any], None]:
    """For the above: the script's own value is the one that holds."""
    return lambda value: site.refuse(f"the script sets it itself, to {value!r}")
