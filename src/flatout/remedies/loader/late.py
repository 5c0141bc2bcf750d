"""torch's own iterators, drawing as one without workers does: from the sampler when the first batch is asked for.

With workers, torch asks the sampler as soon as an iterator is made, and twice. What a script draws between that and its
first batch, and a second iterator over the same loader, would then find other random numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

_NEXT = "_next_data"


def reset_late(original: Callable[..., None], iterator: Any, loader: Any, first_iter: bool) -> None:
    """`original` is torch's `_reset`. What the iterator has drawn from already is what it goes on with."""
    sampler, ahead = iterator._index_sampler, iterator._prefetch_factor
    vars(iterator).pop(_NEXT, None)
    iterator._index_sampler, iterator._prefetch_factor = _Begun(iterator._sampler_iter), 0
    try:
        original(iterator, loader, first_iter)
    finally:
        iterator._index_sampler, iterator._prefetch_factor = sampler, ahead
    # By a weak reference: an iterator that held itself would end its workers late.
    found = weakref.ref(iterator)
    vars(iterator)[_NEXT] = lambda: _first_of(found())


def _first_of(iterator: Any) -> Any:
    del vars(iterator)[_NEXT]
    for _ in range(iterator._prefetch_factor * iterator._num_workers):
        iterator._try_put_index()
    return iterator._next_data()


class _Begun:
    """A sampler whose iterator exists."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> Any:
        return self._entries
