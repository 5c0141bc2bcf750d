"""flatout: find what keeps a GPU idle while a PyTorch model trains, fix it, and prove the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["DataLoader", "__version__", "autotune", "cached", "prefetch", "session"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from flatout.feed.cache.dataset import cached
    from flatout.feed.device_prefetch import prefetch
    from flatout.feed.loader import DataLoader, autotune
    from flatout.launch.session import session

# Each is imported when it is first asked for: the command line and a report need no torch.
_HOMES = {
    "DataLoader": "flatout.feed.loader",
    "autotune": "flatout.feed.loader",
    "cached": "flatout.feed.cache.dataset",
    "prefetch": "flatout.feed.device_prefetch",
    "session": "flatout.launch.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flatout' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
