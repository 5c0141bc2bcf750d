"""What a script that was killed leaves behind: its cache of samples, in shared memory, which nobody else would free."""

from __future__ import annotations


def reap_shared_memory() -> None:
    """Remove this user's caches that no process has open any more."""
    from flatout.feed.cache.segment import SHARED_MEMORY, reap  # at the end: not before the script has started

    reap(SHARED_MEMORY)
