"""Page-locked copies of batches, of any type: a custom batch's tensors are found by walking its attributes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory as torch_pin

_DEEPEST = 6
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)


def pinned(batch: Any) -> Any:
    """`batch` as torch pins it; an object that torch would hand on unpinned becomes a copy with pinned tensors."""
    return _pinned(batch, _DEEPEST)


def _pinned(value: Any, depth: int) -> Any:
    if isinstance(value, _PLAIN) or depth == 0:
        return value
    if isinstance(value, torch.Tensor) or hasattr(value, "pin_memory"):
        return value.pin_memory()
    if type(value) is dict:
        return {key: _pinned(item, depth - 1) for key, item in value.items()}
    if type(value) is list:
        return [_pinned(item, depth - 1) for item in value]
    if type(value) is tuple:
        return tuple(_pinned(item, depth - 1) for item in value)
    done = torch_pin(value)
    return _object(value, depth) if done is value else done


def _object(value: Any, depth: int) -> Any:
    attributes = getattr(value, "__dict__", None)
    if not attributes or isinstance(value, type) or callable(value):
        return value
    changed = {}
    for name, item in attributes.items():
        new = _pinned(item, depth - 1)
        if new is not item and _has_tensor(item, depth - 1):
            changed[name] = new
    if not changed:
        return value
    try:
        clone = copy.copy(value)
        for name, item in changed.items():
            object.__setattr__(clone, name, item)
    except Exception:
        return value  # one that cannot be copied stays as it is, as it does with torch
    return clone


def _has_tensor(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, _PLAIN) or depth == 0:
        return False
    if isinstance(value, dict):
        return any(_has_tensor(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_tensor(item, depth - 1) for item in value)
    return any(_has_tensor(item, depth - 1) for item in getattr(value, "__dict__", {}).values())
