"""Which calls are the same call: tensors of equal form at the same places, and equal plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class NotPlain(Exception):
    """Something that may hold tensors where they are not seen; the words name it."""


def tensors_of(torch: Any, value: Any) -> Iterator[Any]:
    """In the order in which `with_tensors` goes. Raises NotPlain for what it would not go into."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise NotPlain(f"a {type(value).__name__} with the layout {value.layout}")
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(torch, one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors_of(torch, one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(torch, getattr(value, field.name))
    elif not isinstance(value, (*_PLAIN, torch.dtype, torch.device)):
        raise NotPlain(f"a {type(value).__name__}")


def form_of(torch: Any, value: Any) -> Any:
    """Equal for two values that one recorded call can stand for."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else None
        return (type(value), value.shape, strides, value.dtype, value.device, value.requires_grad)
    if isinstance(value, dict):
        return (type(value), *((key, form_of(torch, one)) for key, one in value.items()))
    if isinstance(value, tuple | list):
        return (type(value), *(form_of(torch, one) for one in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (type(value), *(form_of(torch, getattr(value, name)) for name in names))
    # Others may not be comparable, and are refused once it comes to recording.
    return (type(value), value if isinstance(value, (*_PLAIN, torch.dtype, torch.device)) else id(value))
