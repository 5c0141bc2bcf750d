"""What a loader and its workers send to each other: fixed-size heads, in packets that arrive whole or not at all.

Tasks lie in one socket that every worker reads: the kernel hands each packet to one of them, no lock is involved, and
a worker killed at any moment leaves the channel in order. What is too large for a packet goes by shared memory."""

from __future__ import annotations

import io
import pickle
import struct
import threading
from dataclasses import astuple, dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from .memory import Area, Memory, Place, Segment, aligned

LOAD, RETIRE = 1, 2  # kinds of task
BATCH, UNSENDABLE, SLOW = 1, 2, 3  # kinds of answer
NO_SLOT = 0xFFFFFFFF
LARGEST = 1 << 15  # of a packet; longer lists of indices go by a segment
LOOK = b"!"  # in place of a task: there is one in the channel that is read first

_TASK = struct.Struct("<BQqIIHHQI?")
_ANSWER = struct.Struct("<BQHiQQQ??")
_TALLY = struct.Struct("<IQQQIQQQ")


class Task(NamedTuple):
    """Load some samples of a batch; whoever does the last part of it puts the batch together."""

    ticket: int
    base_seed: int
    epoch: int
    slot: int
    part: int
    parts: int
    batch: int  # number of the batch within its epoch
    first: int  # place of the first sample within the batch
    indices: Any


@dataclass(slots=True)
class Tally:
    """What a worker did since its last answer."""

    samples: int = 0
    fetch_ns: int = 0
    slowest_ns: int = 0
    slow_ns: int = 0  # by samples far slower than most
    parts: int = 0
    parts_ns: int = 0  # taken by handing parts over
    collate_ns: int = 0
    cpu_ns: int = 0  # of the fetches


class Answer(NamedTuple):
    """A batch, or the exception in place of one. Of kind SLOW: `ticket` is the index of a sample that took long."""

    kind: int
    ticket: int
    place: Place
    used_randomness: bool
    is_renumbered: bool
    tally: Tally


def write_task(task: Task, place: Place | None) -> bytes:
    """`place`: where the pickled indices lie if they are too long for a packet."""
    head = _TASK.pack(LOAD, *task[:-1], place is not None)
    return head + pickle.dumps(task.indices if place is None else place, protocol=5)


def write_retire() -> bytes:
    """One worker may leave, whichever reads this."""
    return _TASK.pack(RETIRE, 0, 0, 0, 0, 0, 0, 0, 0, False)


def read_task(packet: bytes) -> tuple[Task, Place | None] | None:
    """The task, and where its indices lie if not in it; None: leave."""
    kind, *fields, elsewhere = _TASK.unpack_from(packet)
    if kind == RETIRE:
        return None
    payload = pickle.loads(memoryview(packet)[_TASK.size :])
    fields.append(None if elsewhere else payload)
    return Task(*fields), payload if elsewhere else None


def write_answer(answer: Answer) -> bytes:
    kind, ticket, place, used_randomness, is_renumbered, tally = answer
    head = _ANSWER.pack(kind, ticket, *place, used_randomness, is_renumbered)
    return head + _TALLY.pack(*astuple(tally))


def read_answer(packet: bytes) -> Answer:
    kind, ticket, *place, used_randomness, is_renumbered = _ANSWER.unpack_from(packet)
    tally = Tally(*_TALLY.unpack_from(packet, _ANSWER.size))
    return Answer(kind, ticket, Place(*place), used_randomness, is_renumbered, tally)


# Objects with tensors and arrays in them, put into shared memory and taken out again without a copy.
#
# Tensors lie in the segment as they are; a pickle of the rest follows them. What this way does not know (sparse
# tensors, tensors on a device, subclasses) goes torch's way, by its own reductions.


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
