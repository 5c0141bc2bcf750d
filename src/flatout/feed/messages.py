"""What a loader and its workers say to each other: fixed-size heads, in packets that arrive whole or not at all.

Tasks lie in one socket that every worker reads: the kernel hands each packet to one of them, no lock is involved, and
a worker killed at any moment leaves the channel in order.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any

from .memory import Place

LOAD, RETIRE = 1, 2  # kinds of task
BATCH, UNSENDABLE, SLOW = 1, 2, 3  # kinds of answer
NO_SLOT = 0xFFFFFFFF
LARGEST = 1 << 15  # of a packet; longer lists of indices go by a segment
LOOK = b"!"  # in place of a task: there is one in the channel that is read first

_TASK = struct.Struct("<BQqIIHHQI?")
_ANSWER = struct.Struct("<BQHiQQQ??")
_TALLY = struct.Struct("<IQQQIQQQ")


@dataclass(frozen=True, slots=True)
class Task:
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


@dataclass(frozen=True, slots=True)
class Answer:
    """A batch, or the exception in place of one. Of kind SLOW: `ticket` is the index of a sample that took long."""

    kind: int
    ticket: int
    place: Place
    used_randomness: bool
    is_renumbered: bool
    tally: Tally


def write_task(task: Task, place: Place | None) -> bytes:
    """`place`: where the pickled indices lie if they are too long for a packet."""
    head = _TASK.pack(
        LOAD, task.ticket, task.base_seed, task.epoch, task.slot, task.part, task.parts, task.batch, task.first,
        place is not None,
    )  # fmt: skip
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
    place, tally = answer.place, answer.tally
    head = _ANSWER.pack(
        answer.kind, answer.ticket, place.seat, place.number, place.offset, place.data_bytes, place.pickle_bytes,
        answer.used_randomness, answer.is_renumbered,
    )  # fmt: skip
    return head + _TALLY.pack(
        tally.samples, tally.fetch_ns, tally.slowest_ns, tally.slow_ns,
        tally.parts, tally.parts_ns, tally.collate_ns, tally.cpu_ns,
    )  # fmt: skip


def read_answer(packet: bytes) -> Answer:
    kind, ticket, seat, number, offset, data_bytes, pickle_bytes, used, renumbered = _ANSWER.unpack_from(packet)
    tally = Tally(*_TALLY.unpack_from(packet, _ANSWER.size))
    place = Place(seat, number, offset, data_bytes, pickle_bytes)
    return Answer(kind, ticket, place, used, renumbered, tally)
