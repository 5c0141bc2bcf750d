"""The tensors in a batch, wherever they are: in tuples, dicts, named tuples, dataclasses and objects of the user's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data._utils import pin_memory as torch_pinning

Path = tuple[object, ...]
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 8


def leaves(batch: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Every tensor with the way to it: keys, places and, for objects, names of attributes with a dot before."""
    if isinstance(batch, torch.Tensor):
        yield path, batch
    elif isinstance(batch, _PLAIN) or len(path) >= _DEEPEST:
        return
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from leaves(value, (*path, key))
    elif isinstance(batch, Sequence):
        for place, value in enumerate(batch):
            yield from leaves(value, (*path, place))
    else:
        for name, value in _attributes(batch).items():
            yield from leaves(value, (*path, f".{name}"))


def map_tensors(batch: Any, change: Callable[[Path, torch.Tensor], torch.Tensor], path: Path = ()) -> Any:
    """The same batch with every tensor changed. What holds none, or cannot be made anew, is given back as it is."""
    if isinstance(batch, torch.Tensor):
        return change(path, batch)
    if isinstance(batch, _PLAIN) or len(path) >= _DEEPEST:
        return batch
    if isinstance(batch, Mapping):
        return _mapping(batch, {key: map_tensors(value, change, (*path, key)) for key, value in batch.items()})
    if isinstance(batch, Sequence):
        return _sequence(batch, [map_tensors(value, change, (*path, place)) for place, value in enumerate(batch)])
    own = _attributes(batch)
    new = {name: map_tensors(value, change, (*path, f".{name}")) for name, value in own.items()}
    if all(new[name] is own[name] for name in own):
        return batch
    try:
        other = copy.copy(batch)
        for name, value in new.items():
            object.__setattr__(other, name, value)  # also of a frozen dataclass
    except Exception:
        return batch
    return other


def wants_pinning() -> bool:
    """Asked for every batch: a remedy that pins may rest for a while."""
    return True


def pin_batch(batch: Any) -> Any:
    """`batch` as torch pins it; of an object that torch hands on as it is, a copy with its tensors pinned."""
    if not wants_pinning():
        return batch
    # By its name in torch's module, which remedies patch.
    return pin_all(torch_pinning.pin_memory(batch))


def pin_all(batch: Any) -> Any:
    """Pin also what torch has not."""
    return map_tensors(batch, lambda path, tensor: tensor if tensor.is_pinned() else tensor.pin_memory())


def _attributes(batch: Any) -> dict[str, Any]:
    own = getattr(batch, "__dict__", None)
    if isinstance(own, dict):
        return own
    slots = [name for kind in type(batch).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(batch, name) for name in slots if hasattr(batch, name)}


def _mapping(batch: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    if all(values[key] is batch[key] for key in values):
        return batch
    try:
        other: Any = copy.copy(batch)
        other.update(values)
        return other
    except (AttributeError, TypeError):
        return values


def _sequence(batch: Sequence[Any], values: list[Any]) -> Any:
    if all(new is old for new, old in zip(values, batch, strict=True)):
        return batch
    if hasattr(batch, "_fields"):
        return type(batch)(*values)  # a named tuple
    try:
        return type(batch)(values)  # type: ignore[call-arg]
    except TypeError:
        return values
