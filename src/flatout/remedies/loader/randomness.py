"""What a batch draws differs with other workers, and the run's record says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..site import Site
from .looking import Look

# All sentences that tell of other numbers begin so.
DRAWS_OTHERS = "not the same random numbers"
OTHER_NUMBER = "with another number of workers"
LIVE_ON = "with workers that live on: theirs go on where new ones would begin"
BY_PLACE = "as without workers, but by a sample's place in the epoch, whatever the number of workers"

OTHER_BATCHES = "not the same batches: the dataset shares its samples out among its workers"
_STREAM = "not known: a stream is not read to find out whether it draws random numbers"
_UNKNOWN = "not known: no sample could be read to find out whether it draws random numbers"
_NONE = "samples draw no random numbers"
_NOT_COLLATED = f"{_NONE}; the collate function could not be looked at"


def said(looked: Look, why: str = OTHER_NUMBER, is_stream: bool = False) -> str:
    """In one sentence. `why`: what makes the numbers others, where any are drawn."""
    who = [name for name, draws in (("samples", looked.draws), ("the collate function", looked.collate_draws)) if draws]
    if who:
        return others(" and ".join(who), why)
    if looked.draws is None:
        return _STREAM if is_stream else _UNKNOWN
    return _NOT_COLLATED if looked.collate_draws is None else _NONE


def others(who: str, why: str) -> str:
    verb = "draws" if who == "the collate function" else "draw"
    return f"{DRAWS_OTHERS} {why}: {who} {verb} them"


def when_an_epoch_begins(site: Site, loader_class: Any, call: Callable[[Any], None]) -> None:
    """`call(loader)` before an iterator of it is made."""

    def make(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            if site.in_force:
                site.guarded(lambda: call(loader), lambda: None)
            return original(loader)

        return __iter__

    site.replace(loader_class, "__iter__", make)
