"""Are the values read from a file of the kinds that a record has? Somebody may have written in it by hand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check(kind: type, values: Mapping[str, Any]) -> None:
    """TypeError names the first value of `values` that the record `kind` cannot have."""
    hints = _hints(kind)
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise TypeError(f"{name} is {value!r:.60}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if hint in (int, float):
        # JSON writes 2.0 as 2 at times, and True is no number.
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, origin or hint)
