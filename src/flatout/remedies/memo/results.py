"""What a function returned, as something that can be kept: copied, compared bit by bit, and measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .content import bits, same_bits

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Unkeepable(Exception):
    """A copy of it would not be the same: the words say why."""


def check(torch: Any, result: Any, arguments: Any) -> None:
    """Whether copies can stand for this result. Raises Unkeepable."""
    given = {id(part) for part in parts_of(arguments) if isinstance(part, list | dict)}
    memory = {_memory(torch, part) for part in parts_of(arguments)} - {None}
    for part in parts_of(result):
        if id(part) in given:
            raise Unkeepable("its result holds one of its arguments")
        if isinstance(part, torch.Tensor):
            _check_tensor(torch, part)
        elif not _is_array(part):
            if not isinstance(part, (*_PLAIN, tuple, list, dict, torch.dtype, torch.device)):
                raise Unkeepable(f"it returns a {type(part).__name__}")
            continue
        where = _memory(torch, part)
        if where is not None and where in memory:
            raise Unkeepable("its result shares memory with an argument, or a part of it with another part")
        memory.add(where)


def _check_tensor(torch: Any, tensor: Any) -> None:
    if tensor.requires_grad:
        raise Unkeepable("gradients flow through its result")
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unkeepable(f"it returns a {type(tensor).__name__} of its own kind")
    # Of memory that overlaps or has gaps a copy is laid out in another way.
    if torch.empty_like(tensor, device="meta").stride() != tensor.stride():
        raise Unkeepable("its result is a view of something larger")


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def _memory(torch: Any, part: Any) -> tuple[str, int] | None:
    """Where it lies; None for what lies nowhere."""
    if isinstance(part, torch.Tensor):
        return (str(part.device), part.untyped_storage().data_ptr()) if part.numel() else None
    if _is_array(part) and hasattr(part, "ctypes"):
        base = part
        while getattr(base, "base", None) is not None and hasattr(base.base, "ctypes"):
            base = base.base
        return "cpu", base.ctypes.data
    return None


def parts_of(value: Any) -> Iterator[Any]:
    """Itself and all that lies in it, as far as it is made of tuples, lists and dicts."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    for one in inner:
        yield from parts_of(one)


def copy_of(torch: Any, value: Any) -> Any:
    """The same in memory of its own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if _is_array(value):
        return value.copy(order="K") if hasattr(value, "ctypes") else value
    if isinstance(value, dict):
        return {name: copy_of(torch, one) for name, one in value.items()}
    if isinstance(value, list):
        return [copy_of(torch, one) for one in value]
    if isinstance(value, tuple) and type(value) is not torch.Size:
        copied = tuple(copy_of(torch, one) for one in value)
        make: Any = getattr(type(value), "_make", tuple)
        return make(copied)
    return value


def same(torch: Any, one: Any, other: Any) -> bool:
    """The same types, shapes and bits all the way down. Waits for the device."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        facts = [(part.shape, part.stride(), part.dtype, part.device) for part in (one, other)]
        return facts[0] == facts[1] and same_bits(torch, bits(torch, one), bits(torch, other))
    if _is_array(one):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(torch, one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(same(torch, a, b) for a, b in zip(one, other, strict=True))
    return repr(one) == repr(other)


def bytes_on(torch: Any, value: Any) -> dict[str, int]:
    """By kind of device, what its tensors and arrays take."""
    taken: dict[str, int] = {}
    for part in parts_of(value):
        if isinstance(part, torch.Tensor):
            kind, size = part.device.type, part.numel() * part.element_size()
        elif _is_array(part):
            kind, size = "cpu", part.nbytes
        else:
            continue
        taken[kind] = taken.get(kind, 0) + size
    return taken
