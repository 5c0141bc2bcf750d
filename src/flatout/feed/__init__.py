"""What feeds the device: the loader, the shared sample cache, the prefetch. Enters the user's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loader import DataLoader as DataLoader
    from .loader import autotune as autotune

_OF_LOADER = ("DataLoader", "autotune")


def __getattr__(name: str) -> Any:
    # Late, so that this package can be imported where torch is not to be.
    if name not in _OF_LOADER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(".loader", __name__), name)
