"""The head of a recording: who wrote it, and the table by which its records are decoded."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.errors import FlatoutError

MAGIC = b"FLATOUT\x01"
VERSION = 1
SLOT_BYTES = 128
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


def dropped_records(data: bytes, header: Header) -> int:
    """How many records the writer could not write since its last "gap" record (kept in the header's last bytes)."""
    at = header.slots_at - _DROPPED.size
    if len(data) < header.slots_at:
        return 0
    return int(_DROPPED.unpack_from(data, at)[0])


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
