"""An iterator that is used up gives its workers to a new one, where somebody still holds it and may ask it again.

torch begins the same iterator anew where workers live on. Whoever holds it since the epoch before would then take
batches of the new one: without workers that live on, it is at its end and stays there.
"""

from __future__ import annotations

from typing import Any


def is_used_up(iterator: Any) -> bool:
    """It has given all its batches. One that was not asked for any yet has not."""
    own = getattr(iterator, "is_used_up", None)
    if own is not None:
        return bool(own)
    return "_next_data" not in vars(iterator) and bool(iterator._rcvd_idx >= iterator._send_idx)


def heir_of(iterator: Any) -> Any:
    """Has its workers and all else that it had. The one it was stays at its end, and ends no workers."""
    heir = object.__new__(type(iterator))
    vars(heir).update(vars(iterator))
    iterator._shutdown = True
    if vars(heir).get("_worker_pids_set"):
        # torch knows by the iterator whose workers these are when one of them dies.
        import torch

        torch._C._remove_worker_pids(id(iterator))
        torch._C._set_worker_pids(id(heir), tuple(worker.pid for worker in heir._workers))
        iterator._worker_pids_set = False
        if heir._pin_memory and hasattr(heir, "_register_persistent_workers_atexit"):
            heir._register_persistent_workers_atexit()
    return heir
