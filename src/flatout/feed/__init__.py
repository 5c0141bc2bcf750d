"""What feeds the device: the loader, the shared sample cache, the prefetch. Enters the user's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .again import autotune as autotune
    from .loader import DataLoader as DataLoader

_WHERE = {"DataLoader": "loader", "autotune": "again"}


def __getattr__(name: str) -> Any:
    # Late, so that this package can be imported where torch is not to be.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
