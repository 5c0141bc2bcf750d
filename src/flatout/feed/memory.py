"""Memory that a loader's processes share: a control block and segments that are written, read and used again.

One anonymous file (memfd) holds it all. It is not bounded by the size of /dev/shm, has no name that a killed process
could leave behind, and pages of it that were touched once stay: a batch written into a used segment costs a copy,
where fresh shared memory costs ten times that in page faults.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

SEATS = 256
SLOTS = 1024
MOST_PARTS = 64
NO_SEGMENT = -1
_SEGMENTS = 1024
_SMALLEST_BYTES = 1 << 16
_AREA_BYTES = 1 << 38  # address space only: pages exist once they are written
_ALIGN = 64

_CLAIM = struct.Struct("<Qii")  # ticket, part, place of the sample within the part (-1: all of it)
_SLOT = struct.Struct("<QII")  # ticket, parts that are done, parts in all
_PART = struct.Struct("<IIQQQ")  # the place of a part; its offset is 0 where there is none
_CLAIM_STEP = 32
_SLOT_STEP = 64 + MOST_PARTS * _PART.size
_STATES_AT = SEATS * _CLAIM_STEP
_SLOTS_AT = _STATES_AT + SEATS * _SEGMENTS
_CONTROL_BYTES = -(-(_SLOTS_AT + SLOTS * _SLOT_STEP) // mmap.PAGESIZE) * mmap.PAGESIZE


class Place(NamedTuple):
    """Where a packed object lies: its segment, and how much of it is data (first) and pickle (after)."""

    seat: int
    number: int
    offset: int
    data_bytes: int
    pickle_bytes: int


_NOWHERE = Place(0, 0, 0, 0, 0)


class Claim(NamedTuple):
    ticket: int
    part: int
    place: int


def _slot_at(slot: int) -> int:
    return _SLOTS_AT + slot * _SLOT_STEP


def _part_at(slot_at: int, part: int) -> int:
    return slot_at + 64 + part * _PART.size


def aligned(size: int) -> int:
    """`size` rounded up so that what follows is aligned for any element type."""
    return -(-size // _ALIGN) * _ALIGN


class Memory:
    """The shared file as one process sees it. `descriptor` is None in the process that makes it."""

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("flatout-feed", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, 1 << 56)
        self.descriptor = descriptor
        self._control = mmap.mmap(descriptor, _CONTROL_BYTES)
        self._maps: dict[int, mmap.mmap] = {}
        self._guards: dict[int, Any] = {}

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    # Claims: what each worker is at, so that a dead one's work is known.

    def claim(self, seat: int, ticket: int, part: int, place: int) -> None:
        _CLAIM.pack_into(self._control, seat * _CLAIM_STEP, ticket, part, place)

    def claimed(self, seat: int) -> Claim:
        return Claim(*_CLAIM.unpack_from(self._control, seat * _CLAIM_STEP))

    # Slots: where the parts of one batch meet.

    @contextmanager
    def _locked(self, slot: int) -> Iterator[int]:
        at = _slot_at(slot)
        # A record lock is let go of by the kernel when its holder is killed; a semaphore would stay taken.
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1, at)
        try:
            yield at
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, at)

    def open_slot(self, slot: int, ticket: int, parts: int) -> None:
        """Give the slot to another batch. Parts that arrived for the former one are released."""
        with self._locked(slot) as at:
            self._clear(at)
            _SLOT.pack_into(self._control, at, ticket, 0, parts)

    def close_slot(self, slot: int) -> None:
        """The batch is done with."""
        self.open_slot(slot, 0, 0)

    def _clear(self, at: int) -> None:
        for part in range(_SLOT.unpack_from(self._control, at)[2]):
            place = self._part(at, part)
            if place.offset:
                self.release(place.seat, place.number)
                _PART.pack_into(self._control, _part_at(at, part), *_NOWHERE)

    def is_current(self, slot: int, ticket: int) -> bool:
        return bool(_SLOT.unpack_from(self._control, _slot_at(slot))[0] == ticket)

    def count_part(self, slot: int, ticket: int, only_if_last: bool) -> bool | None:
        """Count a part as done. True: it was the last. None: the batch is not wanted any more.

        With `only_if_last` a part that is not the last is not counted yet: it has to be written first.
        """
        with self._locked(slot) as at:
            current, done, parts = _SLOT.unpack_from(self._control, at)
            if current != ticket:
                return None
            last: bool = done + 1 == parts
            if last or not only_if_last:
                _SLOT.pack_into(self._control, at, ticket, done + 1, parts)
            return last

    def put_part(self, slot: int, ticket: int, part: int, place: Place) -> bool:
        """Say where a part lies; False when the batch is not wanted any more."""
        with self._locked(slot) as at:
            if _SLOT.unpack_from(self._control, at)[0] != ticket:
                return False
            _PART.pack_into(self._control, _part_at(at, part), *place)
            return True

    def has_part(self, slot: int, part: int) -> bool:
        return self._part(_slot_at(slot), part).offset != 0

    def take_part(self, slot: int, ticket: int, part: int) -> Place | None:
        """Where a part lies; from now on the taker gives it back."""
        with self._locked(slot) as at:
            place = self._part(at, part)
            if _SLOT.unpack_from(self._control, at)[0] != ticket or not place.offset:
                return None
            _PART.pack_into(self._control, _part_at(at, part), *_NOWHERE)
            return place

    def _part(self, slot_at: int, part: int) -> Place:
        return Place(*_PART.unpack_from(self._control, _part_at(slot_at, part)))

    # Segments: their state is one byte each, set by the owner, cleared by the reader.

    def release(self, seat: int, number: int) -> None:
        self._control[_STATES_AT + seat * _SEGMENTS + number] = 0

    def take_state(self, seat: int, number: int) -> None:
        self._control[_STATES_AT + seat * _SEGMENTS + number] = 1

    def is_taken(self, seat: int, number: int) -> bool:
        return self._control[_STATES_AT + seat * _SEGMENTS + number] != 0

    def taken_by(self, seat: int) -> int:
        at = _STATES_AT + seat * _SEGMENTS
        return _SEGMENTS - self._control[at : at + _SEGMENTS].count(0)

    def forget_seat(self, seat: int) -> None:
        at = _STATES_AT + seat * _SEGMENTS
        self._control[at : at + _SEGMENTS] = bytes(_SEGMENTS)
        self.claim(seat, 0, 0, 0)

    def map_segment(self, offset: int, size: int) -> mmap.mmap:
        mapped = self._maps.get(offset)
        if mapped is None or len(mapped) < size:
            pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            mapped = self._maps[offset] = mmap.mmap(self.descriptor, pages, offset=offset)
        return mapped

    @property
    def held(self) -> int:
        return len(self._guards)

    def open(self, place: Place) -> Any:
        """The bytes at `place` as a buffer. When the last user lets go of it, the segment can be written anew."""
        size = place.data_bytes + place.pickle_bytes
        mapped = self.map_segment(place.offset, size)
        guard = (ctypes.c_char * size).from_buffer(mapped)
        key = id(guard)

        def let_go(_: object) -> None:
            del self._guards[key]
            self.release(place.seat, place.number)

        self._guards[key] = weakref.ref(guard, let_go)
        return guard

    def copy(self, place: Place) -> Any:
        """The same bytes in memory of one's own; the segment is free at once."""
        size = place.data_bytes + place.pickle_bytes
        copied = bytearray(self.map_segment(place.offset, size)[:size])
        self.release(place.seat, place.number)
        return copied


class Segment:
    """Memory that its owner fills, one piece of data after the other."""

    def __init__(self, seat: int, number: int, offset: int, capacity: int, mapped: mmap.mmap) -> None:
        self.seat = seat
        self.number = number
        self.offset = offset
        self.capacity = capacity
        self.mapped = mapped
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self.used = 0

    def reserve(self, size: int) -> int | None:
        """Where `size` bytes may be put, None when they do not fit."""
        at = self.used
        if at + size > self.capacity:
            return None
        self.used = aligned(at + size)
        return at


class Area:
    """The segments that one process fills for others."""

    def __init__(self, memory: Memory, seat: int, incarnation: int) -> None:
        self._memory = memory
        self._seat = seat
        self._next = (
            aligned(_CONTROL_BYTES + mmap.PAGESIZE) // mmap.PAGESIZE * mmap.PAGESIZE + incarnation * _AREA_BYTES
        )
        self._segments: list[Segment] = []

    def take(self, size: int) -> Segment:
        """A segment of at least `size` bytes that nobody reads any more, or a new one."""
        capacity = max(_SMALLEST_BYTES, 1 << (size - 1).bit_length())
        for segment in self._segments:
            if segment.capacity == capacity and not self._memory.is_taken(self._seat, segment.number):
                break
        else:
            segment = self._make(capacity)
        segment.used = 0
        self._memory.take_state(self._seat, segment.number)
        return segment

    def _make(self, capacity: int) -> Segment:
        number = len(self._segments)
        if number == _SEGMENTS:
            raise MemoryError(
                f"{_SEGMENTS} batches of one loader worker are in use at the same time; let go of batches you keep, "
                f"or keep copies of them (batch.clone())"
            )
        mapped = self._memory.map_segment(self._next, capacity)
        segment = Segment(self._seat, number, self._next, capacity, mapped)
        self._next += capacity
        self._segments.append(segment)
        return segment

    def give_back(self, segment: Segment) -> None:
        self._memory.release(self._seat, segment.number)

    def drop_unused(self) -> None:
        """Return the memory of segments that nobody reads, before their owner leaves."""
        for segment in self._segments:
            if not self._memory.is_taken(self._seat, segment.number):
                segment.mapped.madvise(mmap.MADV_REMOVE)
