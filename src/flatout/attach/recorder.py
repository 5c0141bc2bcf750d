"""A memory-mapped append file with one writer: what it holds survives a kill -9 and can be read while it grows.

A record is one slice assignment into mapped memory, so the hot path makes no system call; only every few thousand
records the next chunk is allocated. Space is reserved with posix_fallocate, because a write into a mapped hole on a
full disk would be a SIGBUS in the user's training. Only the current chunk is mapped, so memory stays flat.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import zlib

from . import wire

_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<8sIIII")  # magic, version, header bytes, JSON length, CRC of the JSON
_TEXT = struct.Struct("<BBH")
_GAP = wire.packer("gap")
_DROPPED = struct.Struct("<Q")
_RETRY_AFTER = 4096  # drops between two attempts to go on after the disk was full
_FIRST, _LAST = 1, 2
_PAGE = mmap.ALLOCATIONGRANULARITY


def fact(id: str, **figures: object) -> dict[str, object]:
    """Something that a person will read, as JSON holds a message: the words for it are on the reader's side."""
    return {"id": id, "args": figures}


class Output:
    """Where watchers write. This one takes nothing: where no recording can be made, the script runs on unrecorded."""

    def append(self, body: bytes) -> int:
        """Write one slot and return its place in the file, or -1 if it had to be dropped."""
        return -1

    def put(self, place: int, body: bytes) -> int:
        """Write running totals over their earlier slot, or anew; returns their place."""
        return -1

    def text(self, what: str, value: object) -> None:
        """Write a JSON value under a name."""

    def close(self) -> None:
        """Let go of the file."""


class Recorder(Output):
    """Append records to `path`. Raises OSError from the constructor only; later trouble is counted, not raised."""

    def __init__(self, path: str, facts: dict[str, object], chunk_bytes: int = 1 << 20) -> None:
        self.path = path
        self.dropped = 0
        self._pid = os.getpid()
        self._gap_start_ns = 0
        self._chunk_bytes = max(1, chunk_bytes // _PAGE) * _PAGE
        text = json.dumps({**facts, "kinds": wire.table(), "phases": wire.PHASES}).encode()
        need = _HEAD.size + len(text) + 64
        self._header_bytes = -(-need // _PAGE) * _PAGE
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._fd, 0, self._header_bytes)
            self._header = mmap.mmap(self._fd, self._header_bytes)
            self._end = self._header_bytes
            self._map_next_chunk()
        except OSError:
            os.close(self._fd)
            raise
        self._header[_HEAD.size : _HEAD.size + len(text)] = text
        # The magic goes last: a file with it has a whole header.
        head = (wire.MAGIC, wire.VERSION, self._header_bytes, len(text), zlib.crc32(text))
        self._header[: _HEAD.size] = _HEAD.pack(*head)

    def _map_next_chunk(self) -> None:
        os.posix_fallocate(self._fd, self._end, self._chunk_bytes)
        self._map = mmap.mmap(self._fd, self._chunk_bytes, offset=self._end)
        self._chunk_start = self._end
        self._end += self._chunk_bytes
        self._at = 0

    def append(self, body: bytes) -> int:
        at = self._at
        if at == self._chunk_bytes:
            if not self._grow():
                return -1
            at = self._at
        self._map[at : at + 128] = body + _CRC.pack(zlib.crc32(body))
        self._at = at + 128
        return self._chunk_start + at

    def put(self, place: int, body: bytes) -> int:
        """Over their earlier record if it is still mapped."""
        at = place - self._chunk_start
        if at < 0:
            return self.append(body)
        self._map[at : at + 128] = body + _CRC.pack(zlib.crc32(body))
        return place

    def text(self, what: str, value: object) -> None:
        """Write a JSON value under a name, over as many slots as it needs."""
        data = json.dumps({"what": what, "value": value}, default=str).encode()
        pieces = [data[i : i + wire.PAYLOAD_BYTES] for i in range(0, len(data), wire.PAYLOAD_BYTES)]
        for i, piece in enumerate(pieces):
            flags = (_FIRST if i == 0 else 0) | (_LAST if i == len(pieces) - 1 else 0)
            head = _TEXT.pack(wire.KINDS["text"][0], flags, len(piece))
            self.append(head + piece.ljust(wire.PAYLOAD_BYTES, b"\0"))

    def _grow(self) -> bool:
        if self.dropped % _RETRY_AFTER == 0:
            old = self._map
            try:
                self._map_next_chunk()
            except (OSError, ValueError):
                # Disk full, file-size limit or no address space: training goes on, the loss is counted.
                self._gap_start_ns = self._gap_start_ns or time.perf_counter_ns()
            else:
                old.close()
                if self.dropped:
                    gap = (self._gap_start_ns, time.perf_counter_ns(), self.dropped)
                    self.dropped = 0
                    self._gap_start_ns = 0
                    self.append(_GAP.pack(wire.KINDS["gap"][0], 0, 0, *gap))
                    # Now told in full by the gap record; left here it would count twice.
                    _DROPPED.pack_into(self._header, self._header_bytes - 8, 0)
                return True
        self.dropped += 1
        # Kept in the header's last bytes, so that the loss is known even if the disk stays full.
        _DROPPED.pack_into(self._header, self._header_bytes - 8, self.dropped)
        return False

    def close(self) -> None:
        """Give the unused rest of the last chunk back and let go of the file."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        self._map.close()
        self._header.close()
        if os.getpid() == self._pid:
            try:
                os.ftruncate(fd, self._chunk_start + self._at)
            except OSError:
                pass
        os.close(fd)
