"""Rows of floats under named columns: what the parent process samples, one file per source.

Every row carries a checksum, so a torn tail costs the torn row and no other. NaN stands for "not measured".
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flatout.errors import FlatoutError

MAGIC = b"FLATROWS"
VERSION = 1
_HEAD = struct.Struct("<8sIIIIQ")  # magic, version, JSON length, CRC of the JSON, reserved, rows dropped
_DROPPED_AT = _HEAD.size - 8
_CRC = struct.Struct("<I")
_HEAD_BYTES = 1 << 16
# A buffer is allocated before the read: most looks find a row or two.
_GLANCE_BYTES, _MOST_BYTES = 1 << 14, 8 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """`lost`: rows that fail their checksum, are cut off, or were never written because the disk was full."""

    columns: tuple[str, ...]
    values: NDArray[np.float64]
    lost: int = 0

    def column(self, name: str) -> NDArray[np.float64]:
        """One column; NaN throughout if the file does not have it."""
        if name not in self.columns:
            return np.full(len(self.values), np.nan)
        return np.asarray(self.values[:, self.columns.index(name)])


class RowWriter:
    """Append rows to a new file at `path`. Raises OSError from the constructor only; later trouble is counted."""

    def __init__(self, path: Path | str, columns: Sequence[str]) -> None:
        if len(set(columns)) != len(columns) or not columns:
            raise ValueError(f"columns must be distinct and at least one, got {list(columns)!r}")
        self.columns = tuple(columns)
        self.dropped = 0
        self._row = struct.Struct(f"<{len(columns)}d")
        text = json.dumps({"columns": self.columns}).encode()
        head = _HEAD.pack(MAGIC, VERSION, len(text), zlib.crc32(text), 0, 0) + text
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if os.pwrite(self._fd, head, 0) != len(head):
                raise OSError(f"no room for the head of {path}")
        except OSError:
            os.close(self._fd)
            raise
        self._end = len(head)

    def append(self, values: Sequence[float | None]) -> None:
        """Write one row, None as NaN. A row that does not fit on the disk is dropped and counted."""
        if self._fd < 0:
            return
        body = self._row.pack(*(float("nan") if value is None else value for value in values))
        data = body + _CRC.pack(zlib.crc32(body))
        try:
            written = os.pwrite(self._fd, data, self._end)
        except OSError:
            written = 0
        if written == len(data):
            self._end += written
        else:
            # The place is not moved on: the next row writes over a torn one.
            self.dropped += 1
            with suppress(OSError):
                os.pwrite(self._fd, struct.pack("<Q", self.dropped), _DROPPED_AT)

    def close(self) -> None:
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        os.close(fd)


def read_rows(path: Path | str) -> Rows:
    """All whole rows of the file, which may still be growing."""
    data = Path(path).read_bytes()
    columns, at, dropped = head_of(data, str(path))
    values, good, used = whole_rows(data[at:], len(columns))
    torn = len(data) - at > used
    return Rows(columns, values[good], int((~good).sum()) + torn + dropped)


def whole_rows(data: bytes, columns: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """The rows at the start of `data`, which of them carry the right checksum, and how many bytes they take."""
    row = np.dtype([("values", "<f8", (columns,)), ("crc", "<u4")])
    count = len(data) // row.itemsize
    table: NDArray[Any] = np.frombuffer(data, row, count)
    body = row.itemsize - _CRC.size
    flat = memoryview(data)
    sums = [zlib.crc32(flat[i : i + body]) for i in range(0, count * row.itemsize, row.itemsize)]
    good: NDArray[np.bool_] = np.asarray(sums, np.uint32) == table["crc"]
    return table["values"], good, count * row.itemsize


def head_of(data: bytes, path: str) -> tuple[tuple[str, ...], int, int]:
    """The columns, where the rows begin, and how many were dropped."""
    if len(data) < _HEAD.size or data[:8] != MAGIC:
        raise FlatoutError(f"{path} is not a file of flatout rows (it starts with {data[:8]!r})")
    _, version, length, crc, _, dropped = _HEAD.unpack_from(data)
    if version != VERSION:
        raise FlatoutError(
            f"{path} has row version {version}, this flatout reads {VERSION}: open it with the one that wrote it"
        )
    text = data[_HEAD.size : _HEAD.size + length]
    if len(text) != length or zlib.crc32(text) != crc:
        raise FlatoutError(f"{path} has a damaged header, so its columns are not known; the file is left as it is")
    return tuple(json.loads(text)["columns"]), _HEAD.size + length, dropped


# Following a file of rows while it grows: each look reads what is new and nothing twice.


class GrowingRows:
    """The rows that a file at `path` has gained since the last look. A file that is not there yet has none."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        # Whether there was more to read than one look takes.
        self.is_behind = False
        self._columns: tuple[str, ...] = ()
        self._at = 0

    def poll(self) -> Rows | None:
        """None where there is nothing new, or no file of rows."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return self._poll(file.fileno())
        except (OSError, FlatoutError):
            return None

    def _poll(self, fd: int) -> Rows | None:
        if not self._columns:
            head = os.pread(fd, _HEAD_BYTES, 0)
            if not head:
                return None
            self._columns, self._at, _ = head_of(head, str(self.path))
        data = os.pread(fd, _GLANCE_BYTES, self._at)
        if len(data) == _GLANCE_BYTES:
            data = os.pread(fd, _MOST_BYTES, self._at)
        table, good, used = whole_rows(data, len(self._columns))
        self.is_behind = len(data) == _MOST_BYTES
        if not used:
            return None
        # The last row may be half written: it is looked at again.
        if not good[-1] and not self.is_behind:
            used -= used // len(good)
            table, good = table[:-1], good[:-1]
        self._at += used
        values: NDArray[np.float64] = table[good]
        return Rows(self._columns, values, int((~good).sum())) if len(values) else None
