"""The samples in a segment: reading without a lock, writing so that nobody ever sees half a sample.

Every sample has a line in the table, found by its index. The first word of the line is its generation: odd while it is
being changed, another number after every change. A reader copies the bytes and looks whether the generation is still
the same. Bytes are checked against their CRC32 when a process reads a generation for the first time, and at every
1024th of its readings; in between, a byte that flips in memory is not noticed. A generation that a process has checked
is known to it: as long as the line bears it, the line's other words are those that were checked.

A newcomer takes free room, and after that the place of the sample of least worth whose place is large enough. What a
writer is about to do is noted first, so that the next writer can put in order what one that was killed has left.
"""

from __future__ import annotations

import atexit
import mmap
import os
import struct
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .format import ALIGN_BYTES, NotFlat, Payload, decode, encode, label_of, labelled
from .place import Place, may_take
from .policy import Clairvoyant, Keep, Lru, PlanWatch, Policy, foreseen_hits, keep_hit_rate, lru_hit_rate, publish
from .segment import TABLE_AT, WORDS_PER_LINE, Counter, Field, Segment, Word, open_segment

MISS = object()
_CHECK_EVERY = 1024
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MOST_LISTED = 512
_KNOWN = struct.Struct("=qq")


_PLACE, _CAPACITY, _NBYTES, _HEAD, _WORTH, _COST_NS, _LAYOUT = (int(field) for field in list(Field)[1:])


class _Room(NamedTuple):
    """A place in the data, and whose it was, if anyone's."""

    place: int
    capacity: int
    victim: int | None = None


class Table:
    """This process's way into a segment's samples."""

    def __init__(self, segment: Segment, policy: Policy, may_take: Callable[[int], bool]) -> None:
        self.segment = segment
        self.samples = segment.samples
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # datasets of this process
        self._plans = PlanWatch(segment)
        self._words = segment.words
        self._data = segment.data
        self._may_take = may_take
        # Of every sample the generation that this process has checked, and its label. Private and zero, and real only
        # where it is written.
        self._known_bytes = memoryview(mmap.mmap(-1, max(1, segment.samples) * _KNOWN.size, flags=_PRIVATE))
        self._known = self._known_bytes.cast("q")
        lines = np.frombuffer(segment.words, np.uint64)[TABLE_AT:].reshape(segment.samples, WORDS_PER_LINE)
        self._lines = lines.view(np.int64)
        self._leaving: list[tuple[int, int]] = []
        self._least = 0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self.policy = policy
        self._touched = policy.touched if policy.touches else None
        self._leaving, self._least = [], 0

    def change_policy(self, name: str) -> None:
        if self.policy.name != name:
            self.use(Clairvoyant(self._plans) if name == "clairvoyant" else Keep() if name == "keep" else Lru())

    def get(self, index: int) -> Any:
        """The sample, a copy of the caller's own, or MISS. `index` is from 0 to the number of samples."""
        words = self._words
        line = TABLE_AT + index * 8
        generation = words[line]
        counter = self.segment.counters_at
        hits = words[counter]
        known, at = self._known, index * 2
        is_known = known[at] == generation and hits % _CHECK_EVERY
        # A line that was never written has the generation of one that was never checked: 0.
        if not (is_known and generation) and not self._check(index, generation):
            return MISS
        try:
            place, layout = words[line + _PLACE], words[line + _LAYOUT]
            build = labelled.get(layout)
            if build is None:
                sample = decode(self._data, place, words[line + _HEAD] >> 32, layout)
            else:
                # The head is not read: it would be one more wait for memory.
                sample = build(self._data, place, (known[at + 1],))
        except Exception:
            # Bytes that change while they are read may decode to anything.
            return self._discard(index, generation)
        # The copying above has atomic counts of references in it: this look is not made before it.
        if words[line] != generation:
            return MISS
        if self._touched is not None:
            words[line + _WORTH] = self._touched(index)
        words[counter] = hits + 1
        return sample

    def kept(self) -> list[int]:
        """The samples that are in the cache now."""
        return [int(index) for index in np.flatnonzero(self._lines[:, _NBYTES])]

    def seen(self) -> list[int]:
        """The samples that have been read before."""
        return [int(index) for index in np.flatnonzero(self._lines[:, _COST_NS])]

    def foresee(self, order: Sequence[int], sample_bytes: float, chances: Any = None) -> None:
        """The samples will be read in this order from now on, by all processes together."""
        words = self.segment.words
        places = int(words[Word.DATA_BYTES] / max(1.0, sample_bytes))
        hits, again = foreseen_hits(order, places, self.kept(), self.seen())
        words[Word.FORESEEN_HITS] += hits
        words[Word.FORESEEN_AGAIN] += again
        publish(self.segment, order, chances)

    def release(self) -> None:
        self.forget_views()
        self.segment.close()

    def forget_views(self) -> None:
        """Before the segment is closed: what still looks into its memory would keep it mapped."""
        self._words = self._data = memoryview(b"")
        self._lines = np.empty((0, WORDS_PER_LINE), np.int64)

    def put(self, index: int, sample: Any, load_ns: int) -> bool:
        """Keep a sample that was loaded in `load_ns`; False where there is no room for it or it cannot be kept."""
        at = TABLE_AT + index * WORDS_PER_LINE + _COST_NS
        before_ns = self._words[at]
        # Other work on the machine makes a load slower, nothing makes it quicker.
        cost_ns = max(1, min(load_ns, before_ns or load_ns))
        self._words[at] = cost_ns
        self.segment.count(Counter.MISSES)
        if not before_ns:
            self.segment.count(Counter.FIRST_READS)
        return sample is not MISS and self._keep(index, sample, cost_ns, before_ns != 0)

    def _keep(self, index: int, sample: Any, cost_ns: int, is_sure: bool) -> bool:
        try:
            payload = encode(sample)
        except NotFlat:
            self.segment.count(Counter.NOT_FLAT)
            return False
        worth = self.policy.worth(index, cost_ns, payload.nbytes)
        # Its worth in comparison with samples that are there.
        standing = worth if is_sure or not self.policy.needs_two_readings else 0
        if self._least and not self.policy.admits(standing, self._least):
            self.segment.count(Counter.NOT_ADMITTED)
            return False
        crc = checksum(payload.parts, index, payload.nbytes)
        with self.segment.writing() as held:
            if not held:
                self.segment.count(Counter.LOCK_TIMEOUTS)
                return False
            self._put_in_order()
            if self._holds(index):
                return True
            room = self._room(index, payload.nbytes + -payload.nbytes % ALIGN_BYTES, standing)
            if room is None:
                self.segment.count(Counter.NOT_ADMITTED)
                return False
            self._write(index, payload, crc, worth, room)
            return True

    def _holds(self, index: int) -> bool:
        line = TABLE_AT + index * WORDS_PER_LINE
        return self._words[line + _NBYTES] != 0 and not self._words[line] & 1

    def _check(self, index: int, generation: int) -> bool:
        """Whether the line holds a whole sample, which is known from now on; what does not pass is discarded."""
        if not generation or generation & 1:
            return False
        # The rest of the line is not read before its generation was.
        self.segment.fence()
        words, line = self._words, TABLE_AT + index * WORDS_PER_LINE
        place, nbytes, head = words[line + _PLACE], words[line + _NBYTES], words[line + _HEAD]
        if not nbytes:
            return False
        try:
            if checksum([self._data[place : place + nbytes]], index, nbytes) == head & 0xFFFFFFFF:
                label = label_of(self._data, place, head >> 32, words[line + _LAYOUT])
                # At once: other threads read both.
                self._known_bytes[index * _KNOWN.size : (index + 1) * _KNOWN.size] = _KNOWN.pack(generation, label)
                return True
        except Exception:
            # Bytes that changed under the reader can look like anything.
            pass
        self._discard(index, generation)
        return False

    def _discard(self, index: int, generation: int) -> Any:
        """What was read is not what was written: unless it was being replaced, it goes. Always MISS."""
        line = TABLE_AT + index * WORDS_PER_LINE
        with self.segment.writing() as held:
            if held and self._words[line] == generation and self._words[line + _NBYTES]:
                self.segment.count(Counter.CORRUPT)
                self._empty(line)
                # Where its place is may be what is wrong: it is not written to again.
                self._words[line + _CAPACITY] = 0
        return MISS

    def _empty(self, line: int) -> None:
        """The sample goes, its room stays with the line; the writers' lock is held."""
        words = self._words
        words[Word.ITEMS] -= 1
        words[Word.LIVE_BYTES] -= words[line + _NBYTES]
        # Odd until it is empty: under the new generation, nobody may find what is going.
        words[line] |= 1
        self.segment.fence()
        words[line + _NBYTES] = 0
        self.segment.fence()
        words[line] += 1

    def _room(self, index: int, size: int, standing: int) -> _Room | None:
        words, line = self._words, TABLE_AT + index * WORDS_PER_LINE
        if words[line + _CAPACITY]:
            # Left from a sample that went; a line never has two places.
            capacity = words[line + _CAPACITY]
            return _Room(words[line + _PLACE], capacity) if capacity >= size else None
        used = words[Word.USED]
        short = used + size - words[Word.ALLOCATED]
        if short <= 0 or self.segment.grow(short, self._may_take):
            return _Room(words[Word.DATA_AT] + used, size)
        victim = self._victim(size, standing)
        if victim is None:
            return None
        theirs = TABLE_AT + victim * WORDS_PER_LINE
        return _Room(words[theirs + _PLACE], words[theirs + _CAPACITY], victim)

    def _victim(self, size: int, standing: int) -> int | None:
        for attempt in range(2):
            if attempt or not self._leaving:
                self._look_for_leaving(size)
            kept = []
            for at, (theirs, victim) in enumerate(self._leaving):
                capacity = int(self._lines[victim, _CAPACITY])
                if not capacity or self._worth_of(victim) != theirs:
                    continue  # has been read, or is gone, since it was listed
                kept.append((theirs, victim))
                if capacity >= size:
                    # Where hits change what a sample is worth, this would soon be out of date.
                    self._least = 0 if self.policy.touches else theirs
                    admitted = theirs == 0 or self.policy.admits(standing, theirs)
                    self._leaving = kept[: -1 if admitted else None] + self._leaving[at + 1 :]
                    return victim if admitted else None
            self._leaving = kept
        return None

    def _worth_of(self, index: int) -> int:
        return int(self._lines[index, _WORTH]) if self._lines[index, _NBYTES] else 0

    def _look_for_leaving(self, size: int) -> None:
        """List the places of least worth that are large enough, the least first."""
        lines = self._lines
        fits = np.flatnonzero(lines[:, _CAPACITY] >= size)
        worth = np.where(lines[fits, _NBYTES] > 0, lines[fits, _WORTH], 0)
        # Looking takes time in the size of the table. Where others may sink below those listed, a list ages.
        count = min(len(fits), max(1, min(_MOST_LISTED, len(fits) // 256)) if self.policy.lowers else _MOST_LISTED)
        if count < len(fits):
            first = np.argpartition(worth, count)[:count]
            fits, worth = fits[first], worth[first]
        self._leaving = sorted(zip(worth.tolist(), fits.tolist(), strict=True))

    def _write(self, index: int, payload: Payload, crc: int, worth: int, room: _Room) -> None:
        words, line = self._words, TABLE_AT + index * WORDS_PER_LINE
        words[Word.PLACE], words[Word.CAPACITY] = room.place, room.capacity
        words[Word.VICTIM] = 0 if room.victim is None else room.victim + 1
        self.segment.fence()
        words[Word.NEWCOMER] = index + 1
        self.segment.fence()
        self._settle(index, room)
        # It is odd already where one that was emptying it was killed.
        words[line] |= 1
        self.segment.fence()
        at = room.place
        for part in payload.parts:
            self._data[at : at + len(part)] = part
            at += len(part)
        words[line + _HEAD] = payload.head_bytes << 32 | crc
        words[line + _LAYOUT] = payload.layout_key
        words[line + _WORTH] = worth
        words[line + _NBYTES] = payload.nbytes
        words[Word.ITEMS] += 1
        words[Word.LIVE_BYTES] += payload.nbytes
        self.segment.fence()
        words[line] += 1
        self.segment.fence()
        words[Word.NEWCOMER] = 0

    def _settle(self, index: int, room: _Room) -> None:
        """The place goes over to `index`, empty. Done twice, it is as if done once."""
        words, line = self._words, TABLE_AT + index * WORDS_PER_LINE
        if room.victim is not None:
            theirs = TABLE_AT + room.victim * WORDS_PER_LINE
            if words[theirs + _NBYTES]:
                self._empty(theirs)
                self.segment.count(Counter.EVICTIONS)
            words[theirs + _CAPACITY] = 0
        words[line + _NBYTES] = 0
        words[line + _PLACE], words[line + _CAPACITY] = room.place, room.capacity
        words[Word.USED] = max(words[Word.USED], room.place + room.capacity - words[Word.DATA_AT])

    def _put_in_order(self) -> None:
        """Finish or undo what a writer was at when it was killed; the writers' lock is held."""
        words = self._words
        newcomer = words[Word.NEWCOMER]
        if not newcomer:
            return
        index, victim = newcomer - 1, words[Word.VICTIM] - 1
        line = TABLE_AT + index * WORDS_PER_LINE
        whole = words[line + _PLACE] == words[Word.PLACE] and words[line + _NBYTES] and not words[line] & 1
        if not whole:
            words[line] |= 1
            self.segment.fence()
            self._settle(index, _Room(words[Word.PLACE], words[Word.CAPACITY], None if victim < 0 else victim))
            self.segment.fence()
            words[line] += 1
        live = self._lines[:, _NBYTES]
        words[Word.ITEMS], words[Word.LIVE_BYTES] = int(np.count_nonzero(live)), int(live.sum())
        words[Word.NEWCOMER] = 0


def checksum(parts: list[Any], index: int, nbytes: int) -> int:
    """CRC32 of the bytes and of whose they are, so that a sample in the wrong line does not pass."""
    crc = zlib.crc32(index.to_bytes(8, "little") + nbytes.to_bytes(8, "little"))
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


# The caches this process has open. They stay open while it lives: loaders made anew every epoch find them warm.


POLICIES = ("keep", "lru", "clairvoyant")
_tables: dict[str, Table] = {}


def open_table(place: Place) -> Table:
    """Raises Unavailable."""
    path = os.path.join(place.folder, place.name)
    table = _tables.get(path)
    if table is None:
        segment = open_segment(place.folder, place.name, place.samples, place.budget_bytes)
        table = _tables[path] = Table(segment, Keep(), may_take)
    table.change_policy(place.policy)
    return table


def release_unused() -> bool:
    """Give back the memory of caches whose datasets are gone; were there any?"""
    unused = [path for path, table in _tables.items() if not table.users]
    for path in unused:
        _tables.pop(path).release()
    return bool(unused)


def release_all() -> None:
    """The last process out frees the memory."""
    while _tables:
        _tables.popitem()[1].release()


atexit.register(release_all)

# What the cache did, over all processes, and what was expected of it.


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made. `warm_hit_rate` is of the readings of samples that had been read before."""

    dataset: str
    policy: str
    items: int = 0
    used_bytes: int = 0
    budget_bytes: int = 0
    hits: int = 0
    misses: int = 0
    first_reads: int = 0
    evictions: int = 0
    corrupt: int = 0
    not_admitted: int = 0
    not_flat: int = 0
    lock_timeouts: int = 0
    predicted_hit_rate: float | None = None

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.hits + self.misses)

    @property
    def warm_hit_rate(self) -> float | None:
        again = self.hits + self.misses - self.first_reads
        return self.hits / again if again > 0 else None

    def __str__(self) -> str:
        warm = "none read twice yet" if self.warm_hit_rate is None else f"{100 * self.warm_hit_rate:.2f}%"
        foreseen = "" if self.predicted_hit_rate is None else f", {100 * self.predicted_hit_rate:.2f}% predicted"
        return (
            f"[{self.dataset}] Cache Stats:\n"
            f"  - Size: {self.items} items\n"
            f"  - Memory: {self.used_bytes / 1e6:.1f} / {self.budget_bytes / 1e6:.1f} MB\n"
            f"  - Hit Rate: {100 * self.hit_rate:.2f}% ({self.hits} hits / {self.misses} misses)\n"
            f"  - Of samples read before: {warm}{foreseen} ({self.policy}, {self.evictions} evictions)"
        )


def read_stats(dataset: str, policy: str, sample_bytes: float, segment: Segment | None) -> CacheStats:
    """Zeros where this process has no cache."""
    if segment is None:
        return CacheStats(dataset, policy)
    words = segment.words
    return CacheStats(
        dataset,
        policy,
        items=words[Word.ITEMS],
        used_bytes=words[Word.LIVE_BYTES],
        budget_bytes=words[Word.DATA_BYTES],
        predicted_hit_rate=predicted_hit_rate(policy, sample_bytes, segment),
        **{counter.name.lower(): segment.total(counter) for counter in Counter},
    )


def predicted_hit_rate(policy: str, sample_bytes: float, segment: Segment) -> float | None:
    """Of samples read before: by simulation of the plans so far, else for reading each once an epoch in a new order."""
    words = segment.words
    if policy == "clairvoyant":
        again = words[Word.FORESEEN_AGAIN]
        return words[Word.FORESEEN_HITS] / again if again else None
    fraction = words[Word.DATA_BYTES] / max(1.0, segment.samples * sample_bytes)
    return keep_hit_rate(fraction) if policy == "keep" else lru_hit_rate(fraction)
