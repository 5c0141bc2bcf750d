"""How often the data has been gone through: the longest loader begins anew with each epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..site import Site


class Epochs:
    """Begins of loaders, by their length, since it was asked to count."""

    def __init__(self, site: Site, begins: Callable[[], None]) -> None:
        self._begun: dict[int, int] = {}
        self._begins = begins
        site.replace(site.torch.utils.data.DataLoader, "__iter__", self._make)

    @property
    def longest(self) -> int | None:
        """Batches in an epoch, as far as a loader says how many it has."""
        return max(self._begun, default=None)

    @property
    def begun(self) -> int:
        return self._begun[max(self._begun)] if self._begun else 0

    def forget(self) -> None:
        """Count from now on."""
        self._begun = dict.fromkeys(self._begun, 0)

    def _make(self, original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            try:
                length = len(loader)
            except (TypeError, NotImplementedError):
                length = 0
            if length:
                self._begun[length] = self._begun.get(length, 0) + 1
            self._begins()
            return original(loader)

        return __iter__
