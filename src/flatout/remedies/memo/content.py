"""A value's content as a key: equal keys mean the same types, shapes and bits, all the way down.

Values up to a mebibyte, and all that lie in the host's memory, are in the key with all their bytes. A larger tensor on
a device is there by two sums over its bits, and comes back beside the key: whoever finds an equal key still has to
compare those bit by bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import pathlib
import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

_DEEPEST = 12
_ROW = 4096
_PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis), range)
_OF_TORCH = ("dtype", "device", "layout", "memory_format")
_OF_ENUM = {"_value_", "_name_", "__objclass__", "_sort_order_"}
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)


class Unkeyable(Exception):
    """Its content cannot be told: the words say why."""


def _most_bytes(kind: str) -> float:
    """Of a tensor on this kind of device, to be in the key with all its bytes."""
    return math.inf if kind == "cpu" else 1 << 20


class Contents:
    """Makes keys. `may_hold` is asked once of each class of the user's that a value is of: why not, or None."""

    def __init__(
        self, torch: Any, may_hold: Callable[[type], str | None], most_bytes: Callable[[str], float] = _most_bytes
    ) -> None:
        self._torch = torch
        self._of_torch = tuple(getattr(torch, name) for name in _OF_TORCH)
        self._may_hold = may_hold
        self._most_bytes = most_bytes
        self._known: set[type] = set()
        self._weights: dict[Any, Any] = {}
        self.bytes = 0
        # Tensors that the last key holds by their sums only, as whole numbers.
        self.large: list[Any] = []

    def key(self, values: Sequence[tuple[str, Any]]) -> Hashable:
        """Of values by what they are called. Raises Unkeyable, with the name."""
        self.large, self.bytes = [], 0
        found = []
        for name, value in values:
            try:
                found.append(self._of(value, 0))
            except Unkeyable as unkeyable:
                raise Unkeyable(f"{name} cannot be compared: {unkeyable}") from None
        return tuple(found)

    def _of(self, value: Any, depth: int) -> Hashable:
        kind = type(value)
        if kind in _PLAIN or kind in self._of_torch:
            return kind, value
        if kind is float:
            return kind, value.hex()  # 0.0 is not -0.0 here
        if kind is self._torch.Tensor:
            return self._of_tensor(value)
        if depth > _DEEPEST:
            raise Unkeyable("its content goes too deep")
        is_record = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if is_record:
            self._check_class(kind)
        if is_record or kind in (tuple, list, self._torch.Size):
            return kind, tuple([self._of(one, depth + 1) for one in value])
        if kind is dict:
            return kind, tuple([(self._of(name, depth + 1), self._of(one, depth + 1)) for name, one in value.items()])
        return self._of_other(value, kind, depth)

    def _of_other(self, value: Any, kind: type, depth: int) -> Hashable:
        if issubclass(kind, self._torch.Tensor):
            raise Unkeyable(f"it is a {kind.__name__}")
        if kind is type or value is self._torch.Tensor:
            return kind, value
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if kind is slice:
            return kind, tuple([self._of(one, depth + 1) for one in (value.start, value.stop, value.step)])
        if isinstance(value, pathlib.PurePath):
            return kind, str(value)
        if _is_array(value):
            return self._of_array(value)
        if isinstance(value, enum.Enum):
            self._check_class(kind)
            if set(vars(value)) - _OF_ENUM:
                raise Unkeyable(f"{value} carries attributes of its own")
            return kind, value.name, self._of(value.value, depth + 1)
        if dataclasses.is_dataclass(kind) or kind in _NAMESPACES:
            self._check_class(kind)
            return kind, tuple([(name, self._of(one, depth + 1)) for name, one in _attributes(value)])
        raise Unkeyable(f"it is a {kind.__name__}, whose content cannot be told")

    def _check_class(self, kind: type) -> None:
        if kind not in self._known:
            why = self._may_hold(kind)
            if why is not None:
                raise Unkeyable(why)
            self._known.add(kind)

    def _of_array(self, array: Any) -> Hashable:
        if array.dtype.hasobject:
            raise Unkeyable("it is an array of objects")
        self.bytes += array.nbytes
        return type(array), array.dtype.str, array.shape, getattr(array, "strides", ()), array.tobytes()

    def _of_tensor(self, tensor: Any) -> Hashable:
        torch = self._torch
        if tensor.requires_grad:
            raise Unkeyable("gradients flow through it")
        if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
            raise Unkeyable(f"it is a {tensor.layout} tensor on {tensor.device}")
        if tensor.__dict__:
            raise Unkeyable("it carries attributes of its own")
        facts = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg())
        size = tensor.numel() * tensor.element_size()
        self.bytes += size
        flat = bits(torch, tensor)
        if size <= self._most_bytes(tensor.device.type):
            return torch.Tensor, facts, flat.cpu().numpy().tobytes()
        self.large.append(flat)
        return torch.Tensor, facts, self._sums(flat)

    def _sums(self, flat: Any) -> tuple[int, ...]:
        """Two weighted sums that wrap around: what is nearly equal has others, and their order does not matter."""
        torch, device = self._torch, flat.device
        if device not in self._weights:
            random = torch.Generator().manual_seed(20_261)
            made = torch.randint(-(1 << 62), 1 << 62, (2, _ROW), generator=random)
            self._weights[device] = made.to(device)
        across, down = self._weights[device]
        eights = flat.numel() // 8 * 8
        # Eight bytes are a number where they begin at a multiple of eight.
        numbers = (flat if flat.storage_offset() % 8 == 0 else flat.clone())[:eights].view(torch.int64)
        whole = numbers.numel() // _ROW * _ROW
        lines = (numbers[:whole].view(-1, _ROW) * across).sum(1)
        places = torch.arange(lines.numel(), device=device)
        rest = (numbers[whole:] * down[: numbers.numel() - whole]).sum()
        last = (flat[eights:] * across[: flat.numel() - eights]).sum()
        sums = torch.stack((lines.sum() + rest + last, (lines * (2 * places + 1) * down[0]).sum() - rest))
        return tuple(sums.tolist())


def bits(torch: Any, tensor: Any) -> Any:
    """All bytes of a tensor in a row; shares its memory where that is possible."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def same_bits(torch: Any, one: Any, other: Any) -> bool:
    """Waits for the device. `one` and `other` are rows of bytes."""
    return one.shape == other.shape and one.device == other.device and bool(torch.equal(one, other))


def _is_array(value: Any) -> bool:
    """Numpy's arrays and numbers, without importing it."""
    kind = type(value)
    is_its_own = kind.__module__ == "numpy" and kind.__name__ not in ("matrix", "memmap", "recarray")
    return is_its_own and hasattr(value, "tobytes") and hasattr(value, "dtype")


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Fields, whether they lie in slots or not, and whatever else was set on it."""
    names = [one.name for one in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return list({**found, **getattr(value, "__dict__", {})}.items())
