"""Notices when a script changes a dataset between two readings: what was kept may be out of date then.

That each attribute is the object it was is looked at before every hit. What these hold (labels that are written over,
a dictionary of settings, a transform's size), and the globals that the dataset reads, is compared as often as a
hundredth of the time allows, and at the first reading of every worker.
"""

from __future__ import annotations

import operator
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data as data

from .key import contents

# What a dataset changes itself shows in its first readings.
_LESSONS = 2
_LEAST_PAUSE_S = 0.02
_PAUSE_TIMES = 100.0
_CLASS = "its class"


class State:
    """The attributes of a dataset and of those it is a subset of."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        names = [name for name, _ in _attributes(dataset)]
        self.where: Any = dataset
        # The class, and below the first name twice: of a single name, no tuple would come.
        self.values_of: Callable[[Any], tuple[Any, ...]] = operator.attrgetter("__class__", *names)
        if names and not isinstance(dataset, data.Subset):
            # All are its own. Looked up there they cost half the time, and this is done at every hit.
            self.where, self.values_of = vars(dataset), operator.itemgetter(names[0], *names)
        self.values = self.values_of(self.where)
        self._lessons = _LESSONS
        self._before: dict[str, str] = {}
        self._its_own: set[str] = set()
        self._contents = self._look()
        _states.add(self)

    def holds(self) -> bool:
        try:
            return bool(self.values_of(self.where) == self.values) and self.contents_hold()
        except Exception:
            return False

    def contents_hold(self) -> bool:
        """Whether what the attributes hold is what it was."""
        return self._look() == self._contents

    def begin(self) -> None:
        """Before the dataset is read."""
        if self._lessons:
            self._before = self._look()

    def renew(self) -> None:
        """After a reading: what the dataset changed by itself (a file it opened, a count) is no one's setting."""
        try:
            self.values = self.values_of(self.where)
        except (AttributeError, KeyError):
            # One that is gone makes `holds` say no from now on.
            pass
        if self._lessons:
            self._lessons -= 1
            now = self._look()
            changed = {name for name in self._before.keys() | now.keys() if self._before.get(name) != now.get(name)}
            self._its_own |= changed
            for name in changed:
                self._contents.pop(name, None)

    def _look(self) -> dict[str, str]:
        began_s = time.monotonic()
        found = {name: contents(value) for name, value in _attributes(self._dataset) if name not in self._its_own}
        if _CLASS not in self._its_own:
            found[_CLASS] = contents(type(self._dataset))
        ended_s = time.monotonic()
        # When it is worth another look.
        self.due_s = ended_s + max(_LEAST_PAUSE_S, _PAUSE_TIMES * (ended_s - began_s))
        return found


def _attributes(dataset: Any) -> Iterator[tuple[str, Any]]:
    prefix = ""
    while True:
        below = isinstance(dataset, data.Subset)
        for name, value in getattr(dataset, "__dict__", {}).items():
            if not (below and name == "dataset"):
                yield prefix + name, value
        if not below:
            return
        dataset, prefix = dataset.dataset, f"{prefix}dataset."


def _forked() -> None:
    for state in _states:
        state.due_s = 0.0


_states: weakref.WeakSet[State] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
