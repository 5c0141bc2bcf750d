"""Samples that draw random numbers draw others with another number of workers, and the run's record says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..site import Site
from .looking import Look, look

_OTHERS = "samples draw random numbers: not the same ones with another number of workers"
_BY_PLACE = (
    "samples draw random numbers: not the same ones as without workers, but by their place in the epoch, whatever the "
    "number of workers"
)
_NONE = "samples draw no random numbers"


def said(looked: Look, by_place: bool = False) -> str | None:
    """In one sentence, None where it is not known."""
    if looked.draws is None:
        return None
    return (_BY_PLACE if by_place else _OTHERS) if looked.draws else _NONE


def when_an_epoch_begins(site: Site, loader_class: Any, call: Callable[[Any], None]) -> None:
    """`call(loader)` before an iterator of it is made."""

    def make(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            if site.in_force:
                site.guarded(lambda: call(loader), lambda: None)
            return original(loader)

        return __iter__

    site.replace(loader_class, "__iter__", make)


class TellOfRandomness:
    """Looks once, when a loader that has workers now is first gone through."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._looked = False

    def begin(self, loader: Any) -> None:
        if not self._looked and self._site.torch.is_grad_enabled() and loader.num_workers:
            self._looked = True
            told = said(look(self._site.torch, loader.dataset))
            if told:
                self._site.tell(randomness=told)
