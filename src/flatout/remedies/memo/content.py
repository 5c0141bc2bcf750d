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
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from ...feed.reasons import Reasoned
from ...records.message import Message, message

_DEEPEST = 12
_ROW = 4096
_PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis), range)
_OF_TORCH = ("dtype", "device", "layout", "memory_format")
_OF_ENUM = {"_value_", "_name_", "__objclass__", "_sort_order_"}
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)


class Unkeyable(Reasoned):
    """Its content cannot be told: the words say why."""


def _most_bytes(kind: str) -> float:
    """Of a tensor on this kind of device, to be in the key with all its bytes."""
    return math.inf if kind == "cpu" else 1 << 20


class Contents:
    """Makes keys. `may_hold` is asked once of each class of the user's that a value is of: why not, or None."""

    def __init__(
        self, torch: Any, may_hold: Callable[[type], Message | None], most_bytes: Callable[[str], float] = _most_bytes
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
                raise Unkeyable(message("memo.cannot_compare", name=name, why=unkeyable.why)) from None
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
            raise Unkeyable(message("memo.too_deep"))
        is_record = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if is_record:
            self._check_class(kind)
        if is_record or kind in (tuple, list, self._torch.Size):
            return kind, tuple([self._of(item, depth + 1) for item in value])
        if kind is dict:
            return kind, tuple([(self._of(name, depth + 1), self._of(item, depth + 1)) for name, item in value.items()])
        return self._of_other(value, kind, depth)

    def _of_other(self, value: Any, kind: type, depth: int) -> Hashable:
        if issubclass(kind, self._torch.Tensor):
            raise Unkeyable(message("memo.is_kind", kind=kind.__name__))
        if kind is type or value is self._torch.Tensor:
            return kind, value
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if kind is slice:
            return kind, tuple([self._of(item, depth + 1) for item in (value.start, value.stop, value.step)])
        if isinstance(value, pathlib.PurePath):
            return kind, str(value)
        if _is_array(value):
            return self._of_array(value)
        if isinstance(value, enum.Enum):
            self._check_class(kind)
            if set(vars(value)) - _OF_ENUM:
                raise Unkeyable(message("memo.enum_attributes", member=str(value)))
            return kind, value.name, self._of(value.value, depth + 1)
        if dataclasses.is_dataclass(kind) or kind in _NAMESPACES:
            self._check_class(kind)
            return kind, tuple([(name, self._of(item, depth + 1)) for name, item in _attributes(value)])
        raise Unkeyable(message("memo.unknown_content", kind=kind.__name__))

    def _check_class(self, kind: type) -> None:
        if kind not in self._known:
            why = self._may_hold(kind)
            if why is not None:
                raise Unkeyable(why)
            self._known.add(kind)

    def _of_array(self, array: Any) -> Hashable:
        if array.dtype.hasobject:
            raise Unkeyable(message("memo.object_array"))
        self.bytes += array.nbytes
        return type(array), array.dtype.str, array.shape, getattr(array, "strides", ()), array.tobytes()

    def _of_tensor(self, tensor: Any) -> Hashable:
        torch = self._torch
        if tensor.requires_grad:
            raise Unkeyable(message("memo.has_gradients"))
        if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
            raise Unkeyable(message("memo.tensor_layout", layout=str(tensor.layout), device=str(tensor.device)))
        if tensor.__dict__:
            raise Unkeyable(message("memo.tensor_attributes"))
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


def same_bits(torch: Any, row: Any, other: Any) -> bool:
    """Of two rows of bytes. Waits for the device."""
    return row.shape == other.shape and row.device == other.device and bool(torch.equal(row, other))


def _is_array(value: Any) -> bool:
    """Numpy's arrays and numbers, without importing it."""
    kind = type(value)
    is_its_own = kind.__module__ == "numpy" and kind.__name__ not in ("matrix", "memmap", "recarray")
    return is_its_own and hasattr(value, "tobytes") and hasattr(value, "dtype")


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Fields, whether they lie in slots or not, and whatever else was set on it."""
    names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return list({**found, **getattr(value, "__dict__", {})}.items())


# Results: what can be kept, copied, compared bit by bit, and measured.

_KEEPABLE = (bool, int, float, complex, str, bytes, type(None))


class Unkeepable(Reasoned):
    """A copy of it would not be the same: the words say why."""


def check_keepable(torch: Any, result: Any, arguments: Any) -> None:
    """Whether copies can stand for this result. Raises Unkeepable."""
    given = {id(part) for part in parts_of(arguments) if isinstance(part, list | dict)}
    memory = {_memory(torch, part) for part in parts_of(arguments)} - {None}
    for part in parts_of(result):
        if id(part) in given:
            raise Unkeepable(message("memo.result_holds_argument"))
        if isinstance(part, torch.Tensor):
            _check_tensor(torch, part)
        elif not _is_numpy(part):
            if not isinstance(part, (*_KEEPABLE, tuple, list, dict, torch.dtype, torch.device)):
                raise Unkeepable(message("memo.returns_kind", kind=type(part).__name__))
            continue
        where = _memory(torch, part)
        if where is not None and where in memory:
            raise Unkeepable(message("memo.result_shares_memory"))
        memory.add(where)


def _check_tensor(torch: Any, tensor: Any) -> None:
    if tensor.requires_grad:
        raise Unkeepable(message("memo.result_has_gradients"))
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unkeepable(message("memo.returns_subclass", kind=type(tensor).__name__))
    # Of memory that overlaps or has gaps a copy is laid out in another way.
    if torch.empty_like(tensor, device="meta").stride() != tensor.stride():
        raise Unkeepable(message("memo.result_is_view"))


def _is_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def _memory(torch: Any, part: Any) -> tuple[str, int] | None:
    """Where it lies; None for what lies nowhere."""
    if isinstance(part, torch.Tensor):
        return (str(part.device), part.untyped_storage().data_ptr()) if part.numel() else None
    if _is_numpy(part) and hasattr(part, "ctypes"):
        base = part
        while getattr(base, "base", None) is not None and hasattr(base.base, "ctypes"):
            base = base.base
        return "cpu", base.ctypes.data
    return None


def parts_of(value: Any) -> Iterator[Any]:
    """Itself and all that lies in it, as far as it is made of tuples, lists and dicts."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    for item in inner:
        yield from parts_of(item)


def map_parts(torch: Any, value: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuples, lists and dicts, with `change(part)` for everything else in them."""
    if isinstance(value, dict):
        return {name: map_parts(torch, item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [map_parts(torch, item, change) for item in value]
    if isinstance(value, tuple) and type(value) is not torch.Size:
        make: Any = getattr(type(value), "_make", tuple)
        return make([map_parts(torch, item, change) for item in value])
    return change(value)


def copy_of(torch: Any, value: Any) -> Any:
    """The same in memory of its own."""

    def copied(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return part.detach().clone()
        return part.copy(order="K") if _is_numpy(part) and hasattr(part, "ctypes") else part

    return map_parts(torch, value, copied)


def is_same(torch: Any, first: Any, second: Any) -> bool:
    """The same types, shapes and bits all the way down. Waits for the device."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        facts = [(part.shape, part.stride(), part.dtype, part.device) for part in (first, second)]
        return facts[0] == facts[1] and same_bits(torch, bits(torch, first), bits(torch, second))
    if _is_numpy(first):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    if isinstance(first, dict):
        return list(first) == list(second) and all(is_same(torch, first[name], second[name]) for name in first)
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(is_same(torch, a, b) for a, b in zip(first, second, strict=True))
    return repr(first) == repr(second)


def bytes_on(torch: Any, value: Any) -> dict[str, int]:
    """By kind of device, what its tensors and arrays take."""
    taken: dict[str, int] = {}
    for part in parts_of(value):
        if isinstance(part, torch.Tensor):
            kind, size = part.device.type, part.numel() * part.element_size()
        elif _is_numpy(part):
            kind, size = "cpu", part.nbytes
        else:
            continue
        taken[kind] = taken.get(kind, 0) + size
    return taken


# Settings of torch that a result depends on, and random generators that a draw would move.


def torch_settings(torch: Any, has_products: bool) -> Hashable | None:
    """Of this thread, just now; None where calls are recorded or rewritten, so that none may be left out.

    How products round is left out where a function has none: a trial that changes it need not compute all results anew.
    """
    c = torch._C
    if (
        torch.compiler.is_compiling()
        or _count(c, "_len_torch_function_stack")
        or _count(c, "_len_torch_dispatch_stack")
    ):
        return None
    on_gpu: tuple[Any, ...] = ()
    if torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return None
        # What is kept was made by work in one stream, and is ready only there.
        on_gpu = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    autocast = tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda"))
    rounding = _of_products(torch.backends) if has_products else ()
    return (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, on_gpu,
        torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), *rounding,
    )  # fmt: skip


def _of_products(backends: Any) -> tuple[Any, ...]:
    """Where torch has the newer names of these, asking by the older ones can fail."""
    cudnn, matmul = backends.cudnn, backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        rounding = (matmul.fp32_precision, cudnn.conv.fp32_precision)
    else:
        rounding = (matmul.allow_tf32, cudnn.allow_tf32)
    return (*rounding, cudnn.benchmark, cudnn.deterministic)


def _count(c: Any, name: str) -> int:
    return int(getattr(c, name, int)())


def generator_states(torch: Any) -> tuple[Any, Any]:
    """Where all stand that scripts commonly draw from: the host's, and the GPU's."""
    from ...feed.seeding import random_states

    return random_states(), torch.cuda.get_rng_state().tolist() if torch.cuda.is_initialized() else None


def moved_generator(torch: Any, before: tuple[Any, Any]) -> Message | None:
    """Whose generator has moved since."""
    from ...feed import seeding

    moved = seeding.moved_generator(before[0])
    return message("memo.of_gpu") if moved is None and before[1] != generator_states(torch)[1] else moved
