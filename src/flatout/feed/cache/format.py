"""A sample as flat bytes.

A payload is a head and then the raw bytes of every array, each at a multiple of 64. The head tells the layout (what the
sample is made of; the same for all samples of most datasets) and then the plain values in it (labels, names). A few
numbers are packed, which is quicker to read; other values are marshalled. Arrays keep their dtype and their order in
memory. What cannot be told exactly in that way is pickled, with its arrays out of band.
"""

from __future__ import annotations

import functools
import hashlib
import io
import marshal
import pickle
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...records.message import message
from ..reasons import Reasoned, error_text

ALIGN_BYTES = 64
# The first bytes of a payload tell how long the layout is.
LENGTH_BYTES = 2
# Writes equal values alike, whoever else refers to them: a layout is found again by its bytes.
_REPEATABLE = 2
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_KEYS = _PLAIN - {complex}
_DEEPEST = 32
_MOST_PACKED = 4
# How no value and one integer are packed.
LABEL_CODES = frozenset({"=", "=q"})
_LONGEST_LAYOUT = (1 << 8 * LENGTH_BYTES) - 1


class NotFlat(Reasoned):
    """This sample cannot be kept as bytes and given back the same."""


class _NeedsPickle(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Payload:
    """An encoded sample: `parts` one after the other are `nbytes` long. The head is filled up to a multiple of 64."""

    parts: list[Any]
    head_bytes: int
    nbytes: int
    layout_key: int


@dataclass(slots=True)
class _Found:
    """What a walk through a sample has gathered, in the order in which it is put together again."""

    values: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


def encode(sample: Any) -> Payload:
    """Raises NotFlat for samples that would not come back the same."""
    found = _Found()
    try:
        layout, values = _described(_flatten(sample, found, 0), found)
        if len(layout) > _LONGEST_LAYOUT:
            raise _NeedsPickle
    except (_NeedsPickle, ValueError):
        found = _Found()
        layout, values = _described(_pickled(sample, found), found)
        if len(layout) > _LONGEST_LAYOUT:
            raise NotFlat(message("cache.too_many_arrays", kind=type(sample).__name__)) from None
    head = len(layout).to_bytes(LENGTH_BYTES, "little") + layout + values
    return _laid_out(head, found.buffers, key_of(layout))


def _described(parts: tuple[Any, ...], found: _Found) -> tuple[bytes, bytes]:
    """The layout and the values, both as bytes."""
    codes = _codes(found.values)
    values = marshal.dumps(tuple(found.values)) if codes is None else struct.pack(codes, *found.values)
    return marshal.dumps((parts, codes), _REPEATABLE), values


def _codes(values: list[Any]) -> str | None:
    """How `struct` packs these values; None where it cannot, or where too many layouts could come of it."""
    if len(values) > _MOST_PACKED:
        return None
    codes = "="
    for value in values:
        if type(value) is float:
            codes += "d"
        elif type(value) is int and -(1 << 63) <= value < 1 << 63:
            codes += "q"
        else:
            return None
    return codes


def key_of(layout: bytes) -> int:
    """64 bits that no two layouts of a dataset share."""
    return int.from_bytes(hashlib.blake2b(layout, digest_size=8).digest(), "little")


def _flatten(value: Any, found: _Found, depth: int) -> tuple[Any, ...]:
    """The layout of `value`."""
    kind = type(value)
    if kind in _PLAIN:
        found.values.append(value)
        return ("value",)
    if kind is torch.Tensor or kind is np.ndarray:
        # An array that stands in two places must come back as one: pickle knows how.
        if id(value) in found.seen:
            raise _NeedsPickle
        found.seen.add(id(value))
        return _flat_tensor(value, found) if kind is torch.Tensor else _flat_array(value, found)
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        found.values.append(value.tobytes())
        return ("scalar", value.dtype.str)
    if depth > _DEEPEST:
        raise _NeedsPickle
    if kind is tuple or kind is list:
        return (kind.__name__, tuple([_flatten(item, found, depth + 1) for item in value]))
    if kind is dict and all(type(key) in _KEYS for key in value):
        return ("dict", tuple(value), tuple([_flatten(item, found, depth + 1) for item in value.values()]))
    raise _NeedsPickle


def _flat_tensor(tensor: torch.Tensor, found: _Found) -> tuple[Any, ...]:
    _must_be_plain(tensor)
    tensor = tensor.resolve_conj().resolve_neg()
    strides = tuple(tensor.stride())
    whole = tensor
    if not tensor.is_contiguous():
        # The slowest axis first; what has gaps or repeats is made whole in C order.
        in_memory = tensor.permute(sorted(range(tensor.ndim), key=lambda axis: -strides[axis]))
        whole = in_memory if in_memory.is_contiguous() else tensor.contiguous()
        strides = strides if in_memory.is_contiguous() else tuple(whole.stride())
    found.buffers.append(whole.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else None)
    return ("tensor", str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), strides, tensor.nbytes)


def _must_be_plain(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise NotFlat(message("cache.tensor_layout", layout=str(tensor.layout), device=str(tensor.device)))
    if tensor.requires_grad:
        raise NotFlat(message("cache.tensor_grad"))
    if vars(tensor):
        raise NotFlat(message("cache.tensor_attributes"))


def _flat_array(array: np.ndarray[Any, Any], found: _Found) -> tuple[Any, ...]:
    if array.dtype.hasobject or array.dtype.fields is not None or array.dtype.kind in "mM":
        raise _NeedsPickle
    in_memory = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    keeps_order = not array.flags.c_contiguous and in_memory.flags.c_contiguous
    whole = in_memory if keeps_order else np.ascontiguousarray(array)
    found.buffers.append(whole.reshape(-1).view(np.uint8) if array.size else None)
    return ("array", array.dtype.str, array.shape, array.strides if keeps_order else None, array.nbytes)


def _laid_out(head: bytes, buffers: list[Any], layout_key: int) -> Payload:
    # marshal does not mind what comes behind a value.
    head += bytes(-len(head) % ALIGN_BYTES)
    parts: list[Any] = [head]
    nbytes = len(head)
    for buffer in buffers:
        if buffer is None:
            continue
        gap = -nbytes % ALIGN_BYTES
        parts += [bytes(gap), memoryview(buffer).cast("B")]
        nbytes += gap + parts[-1].nbytes
    return Payload(parts, len(head), nbytes, layout_key)


class _Pickler(pickle.Pickler):
    """Keeps tensors out of band too; numpy does so by itself."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor:
            return NotImplemented
        _must_be_plain(value)
        flat: Any = value.contiguous().reshape(-1).view(torch.uint8).numpy() if value.numel() else np.empty(0, np.uint8)
        return rebuilt, (pickle.PickleBuffer(flat), str(value.dtype).removeprefix("torch."), tuple(value.shape))


def rebuilt(buffer: Any, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over the bytes of a pickled one."""
    dtype = getattr(torch, name)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape) if len(buffer) else torch.empty(shape, dtype=dtype)


def _pickled(sample: Any, found: _Found) -> tuple[Any, ...]:
    out = io.BytesIO()
    outside: list[pickle.PickleBuffer] = []
    try:
        _Pickler(out, protocol=5, buffer_callback=outside.append).dump(sample)
        buffers = [np.frombuffer(buffer.raw(), np.uint8) if buffer.raw().nbytes else None for buffer in outside]
    except NotFlat:
        raise
    except Exception as error:
        raise NotFlat(message("cache.not_pickled", kind=type(sample).__name__, error=error_text(error))) from error
    found.values.append(out.getvalue())
    found.buffers += buffers
    return ("pickle", tuple(0 if buffer is None else buffer.nbytes for buffer in buffers))


@functools.cache
def signature() -> str:
    """Changes whenever bytes written by one process could be misread by another."""
    return f"2 {__name__} {marshal.version} {np.__version__} {torch.__version__}"


# Decoding: a sample from its bytes, as private copies that share no memory with the payload. Each layout is compiled
# once into small functions that know where every array begins. Memory of tensors that nobody holds any more is used
# again: new memory costs a page fault for every 4 KB, more than the copy itself.

Shape = tuple[int, ...]
Build = Callable[[memoryview, int, tuple[Any, ...]], Any]
Unpack = Callable[[memoryview, int], tuple[Any, ...]]
# How to build the sample, how to unpack its values, and where in the payload these begin. Values that are not packed
# have no fixed length: the arrays are then found from where the head ends, else from where the payload begins.
Recipe = tuple[Build, Unpack | None, int]
_MOST_LAYOUTS = 4096
_MOST_IDLE_BYTES = 64 << 20
# By the layout's key.
_recipes: dict[int, Recipe] = {}
# Those of them that need no value but one integer, or none: what most datasets give, an image and its label.
labelled: dict[int, Build] = {}
_idle_bytes = 0
# Counts who holds a tensor's memory, by whatever view. Where a torch does not tell, memory is never used twice.
_holders = getattr(torch._C, "_storage_Use_Count", None)


def decode(data: memoryview, place: int, head_bytes: int, layout_key: int) -> Any:
    """The sample whose payload is at that place of `data` and whose layout has that key."""
    arrays_at = place + head_bytes
    build, unpack, values_at = _recipes.get(layout_key) or _learned(data[place:arrays_at], layout_key)
    if unpack is not None:
        return build(data, place, unpack(data, place + values_at))
    return build(data, arrays_at, marshal.loads(data[place + values_at : arrays_at]))


def label_of(data: memoryview, place: int, head_bytes: int, layout_key: int) -> int:
    """The integer that a sample with a layout of `labelled` needs; 0 where it needs none."""
    _, unpack, values_at = _recipes.get(layout_key) or _learned(data[place : place + head_bytes], layout_key)
    values = unpack(data, place + values_at) if unpack is not None and layout_key in labelled else ()
    return values[0] if values else 0


def _learned(head: memoryview, layout_key: int) -> Recipe:
    """What was not known yet."""
    global _idle_bytes
    if len(_recipes) >= _MOST_LAYOUTS:
        _recipes.clear()
        labelled.clear()
        _idle_bytes = 0
    values_at = LENGTH_BYTES + int.from_bytes(head[:LENGTH_BYTES], "little")
    layout = bytes(head[LENGTH_BYTES:values_at])
    if key_of(layout) != layout_key:
        raise ValueError("the layout is not the one that was written")
    parts, codes = marshal.loads(layout)
    if codes is None:
        recipe: Recipe = _Compiler(0).compile(parts), None, values_at
    else:
        recipe = _Compiler(len(head)).compile(parts), struct.Struct(codes).unpack_from, values_at
    _recipes[layout_key] = recipe
    if codes in LABEL_CODES:
        labelled[layout_key] = recipe[0]
    return recipe


class _Compiler:
    """Turns a layout into a function; knows how many values and bytes come before each part."""

    def __init__(self, arrays_at: int) -> None:
        self._values = 0
        self._bytes = arrays_at

    def compile(self, layout: tuple[Any, ...]) -> Build:
        build: Build = getattr(self, f"_{layout[0]}")(*layout[1:])
        return build

    def _next_value(self) -> int:
        self._values += 1
        return self._values - 1

    def _next_bytes(self, nbytes: int) -> tuple[int, int]:
        begin = self._bytes
        self._bytes += nbytes + -nbytes % ALIGN_BYTES
        return begin, begin + nbytes

    def _value(self) -> Build:
        at = self._next_value()
        return lambda data, start, values: values[at]

    def _scalar(self, dtype: str) -> Build:
        at, kind = self._next_value(), np.dtype(dtype)
        return lambda data, start, values: np.frombuffer(values[at], kind)[0]

    def _tuple(self, items: tuple[Any, ...]) -> Build:
        if len(items) == 2 and items[0][0] == "tensor" and items[1] == ("value",) and _holders is not None:
            # What most datasets give: a tensor and its label. One function makes both, as a call counts here.
            _, dtype, shape, strides, nbytes = items[0]
            if nbytes > 0:
                return _pooled(dtype, shape, strides, self._next_bytes(nbytes), label_at=self._next_value())
        parts = [self.compile(item) for item in items]
        if len(parts) == 2:
            first, second = parts
            return lambda data, start, values: (first(data, start, values), second(data, start, values))
        return lambda data, start, values: tuple([part(data, start, values) for part in parts])

    def _list(self, items: tuple[Any, ...]) -> Build:
        parts = [self.compile(item) for item in items]
        return lambda data, start, values: [part(data, start, values) for part in parts]

    def _dict(self, keys: tuple[Any, ...], items: tuple[Any, ...]) -> Build:
        parts = [(key, self.compile(item)) for key, item in zip(keys, items, strict=True)]
        return lambda data, start, values: {key: part(data, start, values) for key, part in parts}

    def _array(self, dtype: str, shape: Shape, strides: Shape | None, nbytes: int) -> Build:
        kind = np.dtype(dtype)
        begin, end = self._next_bytes(nbytes)

        def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
            return np.ndarray(shape, kind, bytearray(data[start + begin : start + end]), 0, strides)

        return make

    def _tensor(self, dtype: str, shape: Shape, strides: Shape, nbytes: int) -> Build:
        if nbytes > 0 and _holders is not None:
            return _pooled(dtype, shape, strides, self._next_bytes(nbytes))
        begin, end = self._next_bytes(nbytes)
        kind = getattr(torch, dtype)
        if nbytes == 0:
            return lambda data, start, values: torch.empty_strided(shape, strides, dtype=kind)
        return lambda data, start, values: torch.frombuffer(
            bytearray(data[start + begin : start + end]), dtype=kind
        ).as_strided(shape, strides)

    def _pickle(self, sizes: tuple[int, ...]) -> Build:
        at = self._next_value()
        places = [self._next_bytes(size) for size in sizes]

        def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
            buffers = [bytearray(data[start + begin : start + end]) for begin, end in places]
            return pickle.loads(values[at], buffers=buffers)

        return make


def _pooled(dtype: str, shape: Shape, strides: Shape, span: tuple[int, int], label_at: int | None = None) -> Build:
    """Makes tensors of one kind, or pairs of such a tensor and a value.

    Memory that has been given out is taken again when only this function holds it. Sharing a tensor with another
    process moves it to other memory: its address tells.
    """
    (begin, end), holders = span, _holders
    assert holders is not None, "nothing can be pooled without a count of its holders"
    # The tensor, its bytes, its storage and how many hold that when it is idle, and where it is and has to be.
    idle: deque[tuple[torch.Tensor, memoryview, int, int, Callable[[], int], int]] = deque()

    def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
        if idle:
            entry = idle.popleft()
            tensor, window, storage, alone, address_of, address = entry
            if address_of() == address:
                if holders(storage) == alone:
                    window[:] = data[start + begin : start + end]
                    # A tensor of its own over the same memory, quicker than detach(). Another thread may find the
                    # entry only after that: from then on it is not alone.
                    copied = tensor.data
                    idle.append(entry)
                    return copied if label_at is None else (copied, values[label_at])
                idle.append(entry)
        copied = fresh(data[start + begin : start + end])
        return copied if label_at is None else (copied, values[label_at])

    def fresh(source: memoryview) -> torch.Tensor:
        global _idle_bytes
        base = torch.empty(end - begin, dtype=torch.uint8)
        flat: Any = base.numpy()
        window = memoryview(flat)
        window[:] = source
        tensor = base.view(getattr(torch, dtype)).as_strided(shape, strides)
        if _idle_bytes + end - begin <= _MOST_IDLE_BYTES:
            _idle_bytes += end - begin
            storage = tensor.untyped_storage()
            del base, flat
            entry = tensor, window, storage._cdata, holders(storage._cdata), storage.data_ptr, storage.data_ptr()
            copied = tensor.data
            idle.append(entry)
            return copied
        return tensor.data

    return make
