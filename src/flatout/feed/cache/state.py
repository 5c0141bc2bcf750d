"""Notices when a script changes a dataset's settings between two readings: what was kept may be out of date then."""

from __future__ import annotations

import operator
from typing import Any

import torch.utils.data as data

_SIMPLE = frozenset({int, float, str, bool, bytes, type(None)})


class State:
    """The plain values, and the transforms, of a dataset and of those it is a subset of."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        # The class is always there: of a single name, attrgetter would give no tuple.
        self.values_of = operator.attrgetter("__class__", *_watched(dataset))
        self.values = self.values_of(dataset)

    def holds(self) -> bool:
        try:
            return bool(self.values_of(self.dataset) == self.values)
        except Exception:
            return False

    def renew(self) -> None:
        """After a reading: what the dataset changed by itself (a file it opened, a count) is no one's setting."""
        try:
            self.values = self.values_of(self.dataset)
        except AttributeError:
            # One that is gone makes `holds` say no from now on.
            pass


def _watched(dataset: Any) -> list[str]:
    names: list[str] = []
    prefix = ""
    while True:
        for name, value in getattr(dataset, "__dict__", {}).items():
            if type(value) in _SIMPLE or "transform" in name:
                names.append(prefix + name)
        if not isinstance(dataset, data.Subset):
            return names
        dataset, prefix = dataset.dataset, f"{prefix}dataset."
