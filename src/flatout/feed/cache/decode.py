"""A sample back from its bytes, as private copies: nothing that is returned shares memory with the payload.

Each layout is turned once into a chain of small functions that know where every array begins. The memory of tensors
that nobody holds any more is used again: new memory costs a page fault for every 4 KB, more than the copying itself.
"""

from __future__ import annotations

import marshal
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .format import ALIGN_BYTES, LENGTH_BYTES, key_of

Build = Callable[[memoryview, int, tuple[Any, ...]], Any]
_MOST_LAYOUTS = 4096
_MOST_IDLE_BYTES = 64 << 20
# By the layout's key: how to build the sample, and where in the payload the layout ends.
builders: dict[int, tuple[Build, int]] = {}
_idle_bytes = 0
_loads = marshal.loads
# Counts who holds a tensor's memory, by whatever view. Where a torch does not tell, memory is never used twice.
_holders = getattr(torch._C, "_storage_Use_Count", None)


def decode(data: memoryview, place: int, head_bytes: int, layout_key: int) -> Any:
    """The sample whose payload is at that place of `data` and whose layout has that key."""
    build, values_at = builders.get(layout_key) or learned(data[place : place + head_bytes], layout_key)
    arrays_at = place + head_bytes
    return build(data, arrays_at, _loads(data[place + values_at : arrays_at]))


def learned(payload: memoryview, layout_key: int) -> tuple[Build, int]:
    """What `builders` did not have yet."""
    global _idle_bytes
    if len(builders) >= _MOST_LAYOUTS:
        builders.clear()
        _idle_bytes = 0
    end = LENGTH_BYTES + int.from_bytes(payload[:LENGTH_BYTES], "little")
    layout = bytes(payload[LENGTH_BYTES:end])
    if key_of(layout) != layout_key:
        raise ValueError("the layout is not the one that was written")
    builders[layout_key] = found = (_Compiler().compile(marshal.loads(layout)), end)
    return found


class _Compiler:
    """Turns a layout into a function; knows how many values and bytes come before each part."""

    def __init__(self) -> None:
        self._values = 0
        self._bytes = 0

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
        parts = [self.compile(item) for item in items]
        if len(parts) == 2:
            one, other = parts
            if items[1] == ("value",):
                # What most datasets give: an array and a label.
                at = self._values - 1
                return lambda data, start, values: (one(data, start, values), values[at])
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
        begin, end = self._next_bytes(nbytes)
        kind = getattr(torch, dtype)
        if nbytes == 0:
            return lambda data, start, values: torch.empty_strided(shape, strides, dtype=kind)
        if _holders is None:
            return lambda data, start, values: torch.frombuffer(
                bytearray(data[start + begin : start + end]), dtype=kind
            ).as_strided(shape, strides)
        return _pooled(kind, shape, strides, begin, end, _holders)

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
    begin: int,
    end: int,
    holders: Callable[[int], int],
) -> Build:
    """Makes tensors of one kind. Memory that has been given out is taken again when only this function holds it.

    Sharing a tensor with another process moves it to other memory: its address tells.
    """
    idle: deque[tuple[torch.Tensor, memoryview, int, int, int]] = deque()

    def make(data: memoryview, start: int, values: tuple[Any, ...]) -> Any:
        if idle:
            entry = idle.popleft()
            tensor, window, storage, alone, address = entry
            if tensor.data_ptr() == address:
                if holders(storage) == alone:
                    window[:] = data[start + begin : start + end]
                    # A tensor of its own over the same memory, quicker than detach(). Another thread may find the
                    # entry only after that: from then on it is not alone.
                    copied = tensor.data
                    idle.append(entry)
                    return copied
                idle.append(entry)
        return fresh(data[start + begin : start + end])

    def fresh(source: memoryview) -> torch.Tensor:
        global _idle_bytes
        base = torch.empty(end - begin, dtype=torch.uint8)
        flat: Any = base.numpy()
        window = memoryview(flat)
        window[:] = source
        tensor = base.view(dtype).as_strided(shape, strides)
        if _idle_bytes + end - begin <= _MOST_IDLE_BYTES:
            _idle_bytes += end - begin
            storage = tensor.untyped_storage()._cdata
            del base, flat
            entry = tensor, window, storage, holders(storage), tensor.data_ptr()
            copied = tensor.data
            idle.append(entry)
            return copied
        return tensor.data

    return make
