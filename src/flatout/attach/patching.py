"""Replace attributes of classes and modules, and put the very same originals back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .stand_in import StandIn, is_written_in_c

_INHERITED = object()


class Patches:
    """The replacements made in this process, newest last.

    `mark` names whose they are: what carries it already is not replaced again, what carries another's is wrapped.
    """

    def __init__(self, mark: str = "__flatout__") -> None:
        self._mark = mark
        self._made: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set `owner.name` to `make(original)`. Absent names and names already replaced are left alone."""
        current = getattr(owner, name, None)
        if current is None or getattr(current, self._mark, False):
            return
        wrapper = make(current)
        if is_written_in_c(current):
            wrapper = StandIn(current, wrapper)
        functools.update_wrapper(wrapper, current)
        setattr(wrapper, self._mark, True)
        before = owner.__dict__.get(name, _INHERITED)
        setattr(owner, name, wrapper)
        self._made.append((owner, name, before, wrapper))

    def add(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of our own that the owner does not have."""
        setattr(owner, name, value)
        self._made.append((owner, name, _INHERITED, value))

    def restore(self) -> None:
        """Undo all. Where someone else has wrapped ours since, theirs stays; ours then only passes through."""
        for owner, name, before, wrapper in reversed(self._made):
            if owner.__dict__.get(name) is not wrapper:
                continue
            if before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._made.clear()


def guarded(call: Callable[[], object], trouble: Callable[[Exception], None]) -> None:
    """Call something of ours from within a patch: what it raises never reaches the script."""
    try:
        call()
    except Exception as error:
        trouble(error)
