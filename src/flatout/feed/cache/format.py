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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

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


class NotFlat(Exception):
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
            raise NotFlat(f"{type(sample).__name__} holds too many arrays") from None
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
        raise NotFlat(f"a tensor with layout {tensor.layout} on {tensor.device} cannot be kept as flat bytes")
    if tensor.requires_grad:
        raise NotFlat("a tensor that requires grad belongs to a graph and cannot be kept")
    if vars(tensor):
        raise NotFlat("a tensor with attributes of its own cannot be kept as flat bytes")


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
        raise NotFlat(f"{type(sample).__name__} cannot be pickled ({type(error).__name__}: {error})") from error
    found.values.append(out.getvalue())
    found.buffers += buffers
    return ("pickle", tuple(0 if buffer is None else buffer.nbytes for buffer in buffers))


@functools.cache
def signature() -> str:
    """Changes whenever bytes written by one process could be misread by another."""
    return f"2 {__name__} {marshal.version} {np.__version__} {torch.__version__}"
