"""Changes the tensors in a nested result, whatever holds them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any


def with_tensors(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with every tensor replaced by `change(tensor)`. What needs no change is handed back as it is.

    Goes through tuples, lists, dictionaries and dataclasses of any class; other objects are left alone.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return _of_dict(torch, value, change)
    if isinstance(value, tuple | list):
        changed = [with_tensors(torch, one, change) for one in value]
        if all(new is old for new, old in zip(changed, value, strict=True)):
            return value
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _of_dataclass(torch, value, change)
    return value


def _of_dict(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    changed = {key: with_tensors(torch, one, change) for key, one in value.items()}
    if all(changed[key] is one for key, one in value.items()):
        return value
    # A class of its own may need arguments, and may keep its entries as attributes too: its own item setter knows.
    result = copy.copy(value)
    for key, one in changed.items():
        result[key] = one
    return result


def _of_dataclass(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    names = [one.name for one in dataclasses.fields(value)]
    changed = {name: with_tensors(torch, getattr(value, name), change) for name in names}
    if all(changed[name] is getattr(value, name) for name in names):
        return value
    result = copy.copy(value)
    for name, one in changed.items():
        object.__setattr__(result, name, one)
    return result
