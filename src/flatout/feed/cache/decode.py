"""A sample back from its bytes, as private copies: nothing that is returned shares memory with the payload.

Each layout is turned once into a chain of small functions that know where every array begins. The memory of tensors
that nobody holds any more is used again: new memory costs a page fault for every 4 KB, more than the copying itself.
"""

from __future__ import annotations

import marshal
import pickle
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .format import ALIGN_BYTES, LABEL_CODES, LENGTH_BYTES, key_of

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
                return self._pooled(dtype, shape, strides, nbytes, label_at=self._next_value())
        parts = [self.compile(item) for item in items]
        if len(parts) == 2:
            one, other = parts
            return lambda data, start, values: (one(data, start, values), other(data, start, values))
        return lambda data, start, values: tuple([part(data, start, values) for part in parts])

    def _list(self, items: tuple[Any, ...]) -> Build:
        parts = [self.compile(item) for item in items]
        return lambda data, start, values: [part(data, start, values) for part in parts]

    def _dict(self, keys: tuple[Any, ...], items: tuple[Any, ...]) -> Build:
        parts = [(key, self.compile(item)) for key, item in zip(keys, items, strict=True)]
        return lambda data, start, values: {key: part(data, start, values) for key, part in parts}

    def _array(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, nbytes: int) -> Build:
        kind = np.dtype(dtype)
        begin, end = self._next_bytes(nbytes)

        def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
            return np.ndarray(shape, kind, bytearray(data[start + begin : start + end]), 0, strides)

        return make

    def _tensor(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int) -> Build:
        if nbytes > 0 and _holders is not None:
            return self._pooled(dtype, shape, strides, nbytes)
        begin, end = self._next_bytes(nbytes)
        kind = getattr(torch, dtype)
        if nbytes == 0:
            return lambda data, start, values: torch.empty_strided(shape, strides, dtype=kind)
        return lambda data, start, values: torch.frombuffer(
            bytearray(data[start + begin : start + end]), dtype=kind
        ).as_strided(shape, strides)

    def _pooled(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int, label_at: int | None = None
    ) -> Build:
        assert _holders is not None, "nothing can be pooled without a count of its holders"
        return _pooled(getattr(torch, dtype), shape, strides, self._next_bytes(nbytes), label_at, _holders)

    def _pickle(self, sizes: tuple[int, ...]) -> Build:
        at = self._next_value()
        places = [self._next_bytes(size) for size in sizes]

        def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
            buffers = [bytearray(data[start + begin : start + end]) for begin, end in places]
            return pickle.loads(values[at], buffers=buffers)

        return make


def _pooled(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    span: tuple[int, int],
    label_at: int | None,
    holders: Callable[[int], int],
) -> Build:
    """Makes tensors of one kind, or pairs of such a tensor and a value.

    Memory that has been given out is taken again when only this function holds it. Sharing a tensor with another
    process moves it to other memory: its address tells.
    """
    begin, end = span
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
        tensor = base.view(dtype).as_strided(shape, strides)
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
