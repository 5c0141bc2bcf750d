"""Objects with tensors and arrays in them, put into shared memory and taken out again without a copy.

Tensors lie in the segment as they are; a pickle of the rest follows them. What this way does not know (sparse tensors,
tensors on a device, subclasses) goes torch's way, by its own reductions.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from .memory import Area, Memory, Place, Segment, aligned

_COUNT = struct.Struct("<I")
_SPAN = struct.Struct("<QQ")
# A view of a much larger storage travels without the rest of it.
_LARGEST_WASTE = 2
_loading = threading.local()


class _Packer(ForkingPickler):
    """Pickles an object; the bytes of its tensors and arrays are set aside, with the offset they are to get."""

    def __init__(self, file: io.BytesIO, segment: Segment | None) -> None:
        super().__init__(file, 5, True, self._keep_buffer)
        self._segment = segment
        self._start = segment.address if segment is not None else 0
        self.end = segment.used if segment is not None else 0
        self.storages: list[tuple[int, torch.UntypedStorage]] = []
        self.buffers: list[tuple[int, memoryview]] = []
        self._offset_of: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or not _is_plain(value):
            return NotImplemented
        storage = value.untyped_storage()
        wasteful = storage.nbytes() > _LARGEST_WASTE * value.nbytes + 4096
        if wasteful and storage.data_ptr() not in self._offset_of:
            value = value.clone(memory_format=torch.preserve_format)
            storage = value.untyped_storage()
        offset = self._place(storage)
        view = (value.storage_offset(), tuple(value.size()), tuple(value.stride()))
        return _tensor, (offset, storage.nbytes(), value.dtype, view)

    def _place(self, storage: torch.UntypedStorage) -> int:
        address = storage.data_ptr()
        known = self._offset_of.get(address)
        if known is not None:
            return known
        if self._segment is not None and 0 <= address - self._start < self._segment.used:
            return address - self._start  # collated right into the segment
        offset = self.end
        self.end = aligned(offset + storage.nbytes())
        self.storages.append((offset, storage))
        if storage.nbytes():
            self._offset_of[address] = offset
        return offset

    def _keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        self.buffers.append((self.end, raw))
        self.end = aligned(self.end + raw.nbytes)
        return False  # out of band


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_nested
        and not tensor.__dict__
    )


def _tensor(offset: int, size: int, dtype: torch.dtype, view: tuple[int, Any, Any]) -> torch.Tensor:
    """`view`: where in the storage it begins, its shape and its strides."""
    if size == 0:
        return torch.empty_strided(*view[1:], dtype=dtype)
    storage = _loading.storages.get(offset)
    if storage is None:
        storage = torch.frombuffer(_loading.buffer, dtype=torch.uint8, count=size, offset=offset).untyped_storage()
        _loading.storages[offset] = storage
    return torch.empty(0, dtype=dtype).set_(storage, *view)


def pack(value: Any, area: Area, segment: Segment | None = None) -> Place:
    """Put `value` into a segment: into `segment`, where parts of it may lie already, or a larger one if need be."""
    file = io.BytesIO()
    packer = _Packer(file, segment)
    try:
        packer.dump(value)
        spans = [_SPAN.pack(offset, raw.nbytes) for offset, raw in packer.buffers]
        tail = _COUNT.pack(len(spans)) + b"".join(spans) + file.getbuffer()
        target = segment
        if target is None or packer.end + len(tail) > target.capacity:
            target = area.take(packer.end + len(tail))
            if segment is not None:
                target.mapped[: segment.used] = segment.mapped[: segment.used]
    except BaseException:
        if segment is not None:
            area.give_back(segment)
        raise
    if segment is not None and target is not segment:
        area.give_back(segment)
    for offset, storage in packer.storages:
        if size := storage.nbytes():
            there = torch.frombuffer(target.mapped, dtype=torch.uint8, count=size, offset=offset)
            there.copy_(torch.empty(0, dtype=torch.uint8).set_(storage, 0, (size,), (1,)))
    for offset, raw in packer.buffers:
        target.mapped[offset : offset + raw.nbytes] = raw
    target.mapped[packer.end : packer.end + len(tail)] = tail
    return Place(target.seat, target.number, target.offset, packer.end, len(tail))


def unpack(buffer: Any, place: Place) -> Any:
    """The object in `buffer`, which its tensors and arrays keep alive."""
    view = memoryview(buffer).cast("B")
    tail = view[place.data_bytes :]
    (count,) = _COUNT.unpack_from(tail)
    start = _COUNT.size + count * _SPAN.size
    spans = [_SPAN.unpack_from(tail, _COUNT.size + i * _SPAN.size) for i in range(count)]
    _loading.buffer, _loading.storages = buffer, {}
    try:
        return pickle.loads(tail[start:], buffers=[view[offset : offset + size] for offset, size in spans])
    finally:
        _loading.buffer = _loading.storages = None


def take(memory: Memory, place: Place) -> Any:
    """The object at `place`; its segment is used again when the object is let go of."""
    return unpack(memory.open(place), place)
