"""For calls that are made a second time: the same arguments, precision and random numbers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...feed.reasons import Reasoned
from ...records.message import message


def fill_tensors(torch: Any, arguments: Any, tensors: Iterable[Any]) -> Any:
    """`arguments` with these tensors in the place of its own."""
    following = iter(tensors)
    return map_tensors(torch, arguments, lambda _: next(following))


def current_autocast(torch: Any, device_type: str) -> Callable[[], Any]:
    """A context as it is now, without its cache of casts."""
    enabled, dtype = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    return lambda: torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=False)


def gradients_of(
    torch: Any, ends: Iterable[tuple[Any, Any]], everything: Sequence[Any], create_graph: bool = False
) -> list[Any]:
    """One for each tensor of `everything`, None where it has none. `ends` are results with what comes back to them."""
    pairs = [(end, seed) for end, seed in ends if seed is not None and end.requires_grad]
    wanted = [tensor for tensor in everything if tensor.requires_grad]
    if not pairs or not wanted:
        return [None] * len(everything)
    results, seeds = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(results, wanted, seeds, create_graph=create_graph, allow_unused=True))
    return [next(found) if tensor.requires_grad else None for tensor in everything]


class Modes:
    """What of a module is in training and what in evaluation, for a second pass that may come after a change of it."""

    def __init__(self, module: Any) -> None:
        self._then = [(part, part.training) for part in module.modules()]
        self._now: list[bool] = []

    def __enter__(self) -> None:
        self._now = [part.training for part, _ in self._then]
        for part, training in self._then:
            part.training = training

    def __exit__(self, *_: object) -> None:
        for (part, _), training in zip(self._then, self._now, strict=True):
            part.training = training


class GivenTensors:
    """The tensors of a call as they were given, for a second pass that may come after they were written into.

    `keeps` holds copies as well: what a script does to its tensors after the first call, it does after every one.
    """

    def __init__(self, tensors: Iterable[Any], keeps: bool) -> None:
        self._tensors = list(tensors)
        self._versions = [tensor._version for tensor in self._tensors]
        # On the host: where this is for memory, the device's is short.
        self._kept = [tensor.detach().to("cpu", copy=True) for tensor in self._tensors] if keeps else None

    @property
    def is_changed(self) -> bool:
        return [tensor._version for tensor in self._tensors] != self._versions

    @property
    def then(self) -> list[Any] | None:
        """Copies from before the change; None where there are none."""
        if self._kept is None:
            return None
        pairs = zip(self._kept, self._tensors, strict=True)
        return [kept.to(given.device).requires_grad_(given.requires_grad) for kept, given in pairs]


class RandomNumbers:
    """Where torch's generators stand, the host's and that of a device; of the current GPU where none is named."""

    def __init__(self, torch: Any, device: Any = None) -> None:
        self._torch = torch
        self._device = "cuda" if device is None else device
        self._host = torch.get_rng_state()
        has_one = torch.cuda.is_initialized() if device is None else device.type == "cuda"
        self._on_device = torch.cuda.get_rng_state(self._device) if has_one else None

    def restore(self) -> None:
        self._torch.set_rng_state(self._host)
        if self._on_device is not None:
            self._torch.cuda.set_rng_state(self._on_device, self._device)


# Calls of the same form: tensors of equal form at the same places, and equal plain values.

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class NotPlain(Reasoned):
    """Something that may hold tensors where they are not seen; the words name it."""


def tensors_of(torch: Any, value: Any) -> Iterator[Any]:
    """In the order in which `with_tensors` goes. Raises NotPlain for what it would not go into."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise NotPlain(message("call.tensor_layout", kind=type(value).__name__, layout=str(value.layout)))
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(torch, item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(torch, item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(torch, getattr(value, field.name))
    elif not isinstance(value, (*_PLAIN, torch.dtype, torch.device)):
        raise NotPlain(message("call.kind", kind=type(value).__name__))


def form_of(torch: Any, value: Any) -> Any:
    """Equal for two values that one recorded call can stand for."""
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout is torch.strided else None
        return (type(value), value.shape, strides, value.dtype, value.device, value.requires_grad)
    if isinstance(value, dict):
        return (type(value), *((key, form_of(torch, item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return (type(value), *(form_of(torch, item) for item in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (type(value), *(form_of(torch, getattr(value, name)) for name in names))
    # Others may not be comparable, and are refused once it comes to recording.
    return (type(value), value if isinstance(value, (*_PLAIN, torch.dtype, torch.device)) else id(value))


# Tensors in nested results.


def map_tensors(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with every tensor replaced by `change(tensor)`. What needs no change is handed back as it is.

    Goes through tuples, lists, dictionaries and dataclasses of any class; other objects are left alone.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return _of_dict(torch, value, change)
    if isinstance(value, tuple | list):
        changed = [map_tensors(torch, item, change) for item in value]
        if all(new is old for new, old in zip(changed, value, strict=True)):
            return value
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _of_dataclass(torch, value, change)
    return value


def _of_dict(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    changed = {key: map_tensors(torch, item, change) for key, item in value.items()}
    if all(changed[key] is item for key, item in value.items()):
        return value
    # A class of its own may need arguments, and may keep its entries as attributes too: its own item setter knows.
    result = copy.copy(value)
    for key, item in changed.items():
        result[key] = item
    return result


def _of_dataclass(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    names = [field.name for field in dataclasses.fields(value)]
    changed = {name: map_tensors(torch, getattr(value, name), change) for name in names}
    if all(changed[name] is getattr(value, name) for name in names):
        return value
    result = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(result, name, item)
    return result
