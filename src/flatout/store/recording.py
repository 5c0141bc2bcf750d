"""Reading what a watched process recorded: afterwards as a whole, or live as it grows.

Files are read, never mapped: the writer may cut its file while we look at it, which would be a SIGBUS in a mapping.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flatout.errors import FlatoutError

# Read of a growing file in one look at most: a reader that joins a long run must not hold all of it at once.
_MOST_BLOCKS = 8
MAGIC = b"FLATOUT\x01"
VERSION = 1
SLOT_BYTES = 128
_BLOCK_BYTES = 8192 * SLOT_BYTES
# Read first. The file is longer than what is written of it, and zeros cost as much to look at as records.
_GLANCE_BYTES = 512 * SLOT_BYTES
BODY_BYTES = 124
PAYLOAD_AT = 4
PAYLOAD_BYTES = 120
# Headers are rounded up to the writer's page size; 64 KiB is the largest page in use.
MAX_HEADER_BYTES = 1 << 17
_HEAD = struct.Struct("<8sIIII")  # magic, version, header bytes, JSON length, CRC of the JSON
_DROPPED = struct.Struct("<Q")
_SMALLEST_PAGE = 4096
_CODES = {"B": "u1", "b": "i1", "H": "<u2", "h": "<i2", "I": "<u4", "i": "<i4", "Q": "<u8", "q": "<i8"} | {
    "f": "<f4",
    "d": "<f8",
}
_FIRST, _LAST = 1, 2
Text = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Losses:
    """What a recording lacks: slots that fail their checksum, records never written, texts without all their parts."""

    damaged_slots: int = 0
    dropped_records: int = 0
    broken_texts: int = 0

    def __bool__(self) -> bool:
        return bool(self.damaged_slots or self.dropped_records or self.broken_texts)


@dataclass(frozen=True, slots=True)
class Recording:
    """One process's records by kind, decoded by the table in its own header."""

    path: Path
    header: Header | None
    records: Mapping[str, NDArray[Any]]
    texts: tuple[Text, ...]
    lost: Losses = field(default_factory=Losses)

    @property
    def facts(self) -> dict[str, Any]:
        return self.header.facts if self.header else {}

    @property
    def phases(self) -> tuple[str, ...]:
        return self.header.phases if self.header else ()

    def count(self, kind: str) -> int:
        return len(self.records[kind]) if kind in self.records else 0

    def column(self, kind: str, name: str) -> NDArray[Any]:
        """One field of all records of a kind. A field that this recording's table does not have is NaN throughout."""
        if kind not in self.records:
            return np.empty(0)
        rows = self.records[kind]
        if name not in (rows.dtype.names or ()):
            return np.full(len(rows), np.nan)
        return np.asarray(rows[name])

    def values(self, what: str) -> list[Any]:
        """All texts of this name, in the order they were written."""
        return [value for name, value in self.texts if name == what]


def read_recording(path: Path | str, like: Header | None = None) -> Recording:
    """Everything readable in the file at `path`, with what was lost counted.

    `like`: the header of another recording of the same run, to decode by if this file's own is damaged.
    """
    path = Path(path)
    with path.open("rb", buffering=0) as file:
        head = os.pread(file.fileno(), MAX_HEADER_BYTES + SLOT_BYTES, 0)
        header = parse_header(head, str(path), like)
        if header is None:
            return Recording(path, None, {}, ())
        decoder = _Decoder(header)
        at = header.slots_at
        while block := os.pread(file.fileno(), _BLOCK_BYTES, at):
            if not decoder.feed(block, if_damaged="wait"):
                # The slot may have been half written when we read it.
                decoder.feed(os.pread(file.fileno(), len(block), at), if_damaged="skip")
            at += _BLOCK_BYTES
        head = os.pread(file.fileno(), header.slots_at, 0)
    records, texts = decoder.take()
    gaps = int(records["gap"]["dropped"].sum()) if "gap" in records else 0
    broken = decoder.assembler.lost + decoder.assembler.unfinished
    # The header's last bytes: what the writer could not write since its last "gap" record.
    dropped = _DROPPED.unpack_from(head, header.slots_at - _DROPPED.size)[0] if len(head) >= header.slots_at else 0
    lost = Losses(decoder.damaged + header.damaged, gaps + int(dropped), broken)
    return Recording(path, header, records, texts, lost)


class Tail:
    """Follow a growing recording. Each `poll` returns what came since the last one.

    Running totals that the writer updates in place are seen once, as they stood at the first look.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        # Whether there was more to read than one look takes.
        self.is_behind = False
        self._decoder: _Decoder | None = None
        self._at = 0
        self._suspect = -1

    def poll(self) -> Recording:
        """New records and texts; empty as long as there are none. `lost` counts from the beginning."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return self._poll(file.fileno())
        except FileNotFoundError:
            return Recording(self.path, None, {}, ())

    def _poll(self, fd: int) -> Recording:
        if self._decoder is None:
            header = parse_header(os.pread(fd, MAX_HEADER_BYTES + SLOT_BYTES, 0), str(self.path))
            if header is None:
                return Recording(self.path, None, {}, ())
            self._decoder = _Decoder(header)
            self._at = header.slots_at
        decoder = self._decoder
        for wanted in (_GLANCE_BYTES, *_MOST_BLOCKS * (_BLOCK_BYTES,)):
            data = os.pread(fd, wanted, self._at)
            good = self._ready(data)
            decoder.feed(data[: len(good) * SLOT_BYTES], if_damaged="skip", good=good)
            self._at += len(good) * SLOT_BYTES
            self.is_behind = len(good) * SLOT_BYTES == wanted
            if not self.is_behind:
                break
        records, texts = decoder.take()
        return Recording(self.path, decoder.header, records, texts, Losses(decoder.damaged, 0, decoder.assembler.lost))

    def _ready(self, data: bytes) -> NDArray[np.bool_]:
        """The slots of `data` that are written for good, and which of them carry the right checksum.

        A zero slot is not written yet; a bad one may be half written, so it is skipped only if it is still bad the next
        time.
        """
        block = _slots(data)
        used = block.view("<u8").any(axis=1)
        end = len(block) if used.all() else int(np.argmin(used))
        good = _checked(block[:end])
        for bad in np.flatnonzero(~good):
            place = self._at + int(bad) * SLOT_BYTES
            if place > self._suspect:
                self._suspect = place
                return good[: int(bad)]
        return good


class _Decoder:
    """Sorts slots by kind, block by block."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.assembler = TextAssembler()
        self.damaged = 0
        self._breaks = 0
        self._gap_kind = next((n for n, layout in header.layouts.items() if layout.name == "gap"), -1)
        self._parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self._texts: list[Text] = []

    def feed(self, data: bytes, if_damaged: Literal["wait", "skip"], good: NDArray[np.bool_] | None = None) -> bool:
        """Take a block in. With "wait", a block with damage is left alone and False is returned.

        `good`: which of its slots carry the right checksum, where that is known; then none of them is empty.
        """
        block = _slots(data)
        if good is None:
            block = block[block.view("<u8").any(axis=1)]
            good = _checked(block)
        if if_damaged == "wait" and not good.all():
            return False
        self.damaged += int((~good).sum()) + any(data[len(data) // SLOT_BYTES * SLOT_BYTES :])
        kinds = np.where(good, block[:, 0], 0)
        broken = ~good | (kinds == self._gap_kind)
        breaks = self._breaks + np.cumsum(broken)
        self._breaks += int(broken.sum())
        for kind in np.flatnonzero(np.bincount(kinds, minlength=1)):
            chosen = kinds == kind
            if kind == self.header.text_kind:
                raw = block[chosen].tobytes()
                pieces = (raw[i : i + SLOT_BYTES] for i in range(0, len(raw), SLOT_BYTES))
                self._texts += self.assembler.feed(pieces, breaks[chosen].tolist())
            elif kind in self.header.layouts:
                layout = self.header.layouts[int(kind)]
                rows = block[chosen, PAYLOAD_AT : PAYLOAD_AT + layout.dtype.itemsize]
                self._parts[layout.name].append(np.ascontiguousarray(rows).view(layout.dtype).reshape(-1))
        return True

    def take(self) -> tuple[dict[str, NDArray[Any]], tuple[Text, ...]]:
        records = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        texts = tuple(self._texts)
        self._parts.clear()
        self._texts = []
        return records, texts


def _slots(data: bytes) -> NDArray[np.uint8]:
    whole = len(data) // SLOT_BYTES
    return np.frombuffer(data, np.uint8, whole * SLOT_BYTES).reshape(whole, SLOT_BYTES)


def _checked(block: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which slots carry the right checksum. zlib in a plain loop is twice as fast as a table in numpy."""
    flat = memoryview(block.tobytes())
    crc32 = zlib.crc32
    sums = [crc32(flat[i : i + BODY_BYTES]) for i in range(0, len(flat), SLOT_BYTES)]
    stored = np.ascontiguousarray(block[:, BODY_BYTES:]).view("<u4").reshape(-1)
    good: NDArray[np.bool_] = np.asarray(sums, np.uint32) == stored
    return good


# The head of a recording: who wrote it, and the table by which its records are decoded.


@dataclass(frozen=True, slots=True)
class Layout:
    """How the payload of one kind of record is laid out."""

    name: str
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Header:
    facts: dict[str, Any]
    phases: tuple[str, ...]
    layouts: dict[int, Layout]
    slots_at: int
    damaged: bool

    @property
    def text_kind(self) -> int:
        return next((number for number, layout in self.layouts.items() if layout.name == "text"), 1)


def parse_header(data: bytes, path: str, like: Header | None = None) -> Header | None:
    """The header at the start of `data`, or None if its writer has not got that far.

    A header whose JSON is damaged borrows its table from `like`, the header of another recording of the same run.
    """
    if len(data) < _HEAD.size or not any(data[: _HEAD.size]):
        return None
    magic, version, header_bytes, length, crc = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    whole = len(text) == length and zlib.crc32(text) == crc
    if magic != MAGIC and not whole:
        raise FlatoutError(f"{path} is not a flatout recording (it starts with {magic!r})")
    if version != VERSION:
        raise FlatoutError(
            f"{path} has recording version {version}, this flatout reads {VERSION}: open it with the one that wrote it"
        )
    if whole:
        return _from_json(json.loads(text), _first_slot(data, header_bytes, _HEAD.size + length), magic != MAGIC)
    if like is None:
        raise FlatoutError(
            f"{path} has a damaged header, so its records cannot be told apart; the file is left as it is"
        )
    return Header({}, like.phases, like.layouts, _first_slot(data, header_bytes, like.slots_at - 64), True)


def _from_json(value: dict[str, Any], slots_at: int, damaged: bool) -> Header:
    kinds: dict[str, Any] = value.pop("kinds", {})
    phases = tuple(value.pop("phases", ()))
    layouts = {}
    for name, kind in kinds.items():
        dtype = _dtype(kind.get("fields", []))
        if dtype is not None:
            layouts[int(kind["id"])] = Layout(name, dtype)
    return Header(value, phases, layouts, slots_at, damaged)


def _dtype(fields: list[list[str]]) -> np.dtype[Any] | None:
    """The packed numpy type of these fields, or None if a newer writer uses a code that is unknown here."""
    parts: list[Any] = []
    for name, code in fields:
        count, letter = code[:-1], code[-1:]
        if letter not in _CODES or (count and not count.isdigit()):
            return None
        parts.append((name, _CODES[letter], (int(count),)) if count else (name, _CODES[letter]))
    dtype = np.dtype(parts)
    return dtype if dtype.itemsize <= PAYLOAD_BYTES else None


def _first_slot(data: bytes, declared: int, used: int) -> int:
    """Where the slots begin. The declared place has no checksum, so a whole slot found earlier is believed first."""
    smallest = -(-(used + 64) // _SMALLEST_PAGE) * _SMALLEST_PAGE
    if declared < smallest or declared % _SMALLEST_PAGE or declared > MAX_HEADER_BYTES:
        declared = smallest
    for at in range(smallest, declared, _SMALLEST_PAGE):
        slot = data[at : at + SLOT_BYTES]
        if (
            len(slot) == SLOT_BYTES
            and any(slot)
            and zlib.crc32(slot[:BODY_BYTES]).to_bytes(4, "little") == slot[BODY_BYTES:]
        ):
            return at
    return declared


# Texts of a recording: JSON values spread over several slots, put together again.


class TextAssembler:
    """Feed it text slots in file order; it gives back the texts that are whole and counts those that are not."""

    def __init__(self) -> None:
        self.lost = 0
        self._state: Literal["none", "open", "broken"] = "none"
        self._breaks = 0
        self._pieces: list[bytes] = []

    @property
    def unfinished(self) -> bool:
        return self._state != "none"

    def feed(self, slots: Iterable[bytes], breaks_before: Iterable[int]) -> list[Text]:
        """`breaks_before` counts, for each slot, the lost slots before it: a text may not span one."""
        whole: list[Text] = []
        for slot, breaks in zip(slots, breaks_before, strict=True):
            flags = slot[1]
            if flags & _FIRST:
                self.lost += self._state != "none"
                self._state, self._breaks, self._pieces = "open", breaks, []
            elif self._state != "open" or breaks != self._breaks:
                self._state = "broken"
            self._pieces.append(slot[PAYLOAD_AT : PAYLOAD_AT + min(PAYLOAD_BYTES, slot[2] | slot[3] << 8)])
            if flags & _LAST:
                self._end(whole)
        return whole

    def _end(self, whole: list[Text]) -> None:
        text = _decode(b"".join(self._pieces)) if self._state == "open" else None
        self._state, self._pieces = "none", []
        if text is None:
            self.lost += 1
        else:
            whole.append(text)


def _decode(data: bytes) -> Text | None:
    try:
        value = json.loads(data)
        return str(value["what"]), value["value"]
    except (ValueError, KeyError, TypeError):
        return None
