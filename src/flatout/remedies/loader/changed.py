"""Has the script changed a dataset since? Numbers and texts are compared, other objects by what they are made of."""

from __future__ import annotations

from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 4
_MOST_ITEMS = 32
_MOST = 512
_LONGEST_TEXT = 256


def fingerprint(value: Any) -> list[object]:
    """Equal as long as nothing was set that an epoch's workers would see. What is deep inside is not looked at."""
    found: list[object] = []
    _walk(value, _DEEPEST, found)
    return found


def _walk(value: Any, depth: int, found: list[object]) -> None:
    if len(found) >= _MOST:
        return
    if isinstance(value, _PLAIN):
        found.append(value[:_LONGEST_TEXT] if isinstance(value, str | bytes) else value)
        return
    # A tensor counts what was written into it.
    found.append((id(value), getattr(value, "_version", None), _length(value)))
    if depth == 0:
        return
    if isinstance(value, dict):
        items: list[Any] = list(value.values())
    elif isinstance(value, list | tuple):
        items = list(value[:_MOST_ITEMS])
    else:
        own = getattr(value, "__dict__", None)
        items = list(own.values()) if isinstance(own, dict) and not callable(own) else []
    for item in items[:_MOST_ITEMS]:
        _walk(item, depth - 1, found)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, dict | list | tuple | set | bytearray) else None
