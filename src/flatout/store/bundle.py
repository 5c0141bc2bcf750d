"""A run as one file to hand on, and the way back in for one that a stranger made.

A bundle is a gzipped tar of plain files, so that anybody can look into it with `tar -tzf`. It is read by the few rules
below and not by a general reader of archives: those follow links, make devices and believe the sizes they are told.
Only the names that a run has are let in, and everything is looked through once before anything is written.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from flatout.errors import FlatoutError
from flatout.records.atomic import PRIVATE, atomic_file
from flatout.store.directory import SUMMARY
from flatout.store.manifest import NAME as MANIFEST
from flatout.store.run import StoredRun

_BLOCK = 512
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16
_PARTS = {"proc": ".rec", "telemetry": ".rows"}
_ALLOWED = re.compile(r"(?:manifest|summary)\.json|proc/[A-Za-z0-9_.-]{1,80}\.rec|telemetry/[a-z0-9_]{1,40}\.rows")
_SIZE = re.compile(rb" *([0-7]{1,11})[ \0]*")
_SUM = re.compile(rb"[ \0]*([0-7]{1,7})[ \0]*")
_OTHER_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
    b"x": "an extended header",
    b"g": "an extended header",
    b"L": "a long name",
    b"K": "a long link",
    b"S": "a file with holes",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a bundle may come to when it is unpacked."""

    files: int = 10_000
    total_bytes: int = 4 << 30
    json_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """What was found by looking a bundle through: the two JSON files, and what the whole comes to."""

    manifest: bytes
    summary: bytes | None
    files: int
    total_bytes: int


def pack(run: StoredRun, file: Path) -> int:
    """Write the run's files to `file` at one stroke and return its size. Nothing else in the run's folder is taken."""
    try:
        with (
            atomic_file(file, mode=PRIVATE) as temporary,
            temporary.open("wb") as out,
            # Without a name and a time in it, so that the same run gives the same bytes.
            gzip.GzipFile("", "wb", 6, out, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for name, path in _files(run):
                _add(tar, name, path, int(run.manifest.started_unix_s))
    except (OSError, ValueError) as error:
        words = (error.strerror if isinstance(error, OSError) else None) or error
        raise FlatoutError(f"{str(file)!r} cannot be written: {words}") from error
    return file.stat().st_size


def _files(run: StoredRun) -> Iterator[tuple[str, Path]]:
    """The manifest first: what a bundle is of can be told from its beginning."""
    for name in (MANIFEST, SUMMARY):
        yield name, run.path / name
    for part, ending in _PARTS.items():
        for path in sorted((run.records_at / part).glob(f"*{ending}")):
            yield f"{part}/{path.name}", path


def _add(tar: tarfile.TarFile, name: str, path: Path, mtime: int) -> None:
    if not _ALLOWED.fullmatch(name):
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return  # a link, or a file that is not there: a run that was killed has no summary
    with os.fdopen(fd, "rb") as source:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return
        member = tarfile.TarInfo(name)
        # As long as it is now: it may be growing.
        member.size, member.mode, member.mtime = facts.st_size, 0o600, max(0, mtime)
        tar.addfile(member, source)


def look_through(bundle: IO[bytes], name: str, limits: Limits | None = None) -> Contents:
    """Read the whole bundle without writing anything; raises FlatoutError if it is not one that may be unpacked."""
    kept: dict[str, bytes] = {}
    files = total = 0
    for member, size, pieces in _members(bundle, name, limits or Limits()):
        files, total = files + 1, total + size
        if member in (MANIFEST, SUMMARY):
            kept[member] = b"".join(pieces)
        else:
            for _ in pieces:
                pass
    if MANIFEST not in kept:
        raise FlatoutError(f"{name!r} is no bundle of a run: it holds no {MANIFEST}")
    return Contents(kept[MANIFEST], kept.get(SUMMARY), files, total)


def unpack(bundle: IO[bytes], name: str, folder: Path, limits: Limits | None = None) -> None:
    """Write the recordings and telemetry into `folder`, by the same rules. The JSON files are the caller's to write."""
    bundle.seek(0)
    for part in _PARTS:
        (folder / part).mkdir(mode=0o700)
    for member, _, pieces in _members(bundle, name, limits or Limits()):
        if member in (MANIFEST, SUMMARY):
            for _ in pieces:
                pass
            continue
        # Never over something that is there, and with our own mode whatever the bundle says.
        fd = os.open(folder / member, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            for piece in pieces:
                out.write(piece)


def _members(bundle: IO[bytes], file: str, limits: Limits) -> Iterator[tuple[str, int, Iterator[bytes]]]:
    """Name, size and contents of each file. The contents have to be read before the next is asked for."""
    source = _Source(bundle, file, limits.total_bytes)
    seen: set[str] = set()
    while any(head := source.exactly(_BLOCK)):
        name, size = _head(head, file)
        most = limits.json_bytes if name.endswith(".json") else limits.total_bytes
        if size > most or source.taken + size > limits.total_bytes:
            raise FlatoutError(
                f"{file!r}: {name!r} would take the bundle over {min(most, limits.total_bytes):,} bytes unpacked; "
                "nothing was imported (--max-gb allows more recordings)"
            )
        if name.casefold() in seen:
            raise FlatoutError(f"{file!r}: {name!r} is in it twice; nothing was imported")
        seen.add(name.casefold())
        if len(seen) > limits.files:
            raise FlatoutError(f"{file!r} holds more than {limits.files:,} files; nothing was imported")
        yield name, size, source.pieces(size)
        source.exactly(-size % _BLOCK)
    source.end()


def _head(head: bytes, file: str) -> tuple[str, int]:
    """Name and size of the member that begins here, if it is one that a run may have."""
    told = _SUM.fullmatch(head[148:156])
    if told is None or int(told[1], 8) != sum(head[:148]) + sum(head[156:]) + 8 * 0x20:
        raise FlatoutError(f"{file!r} is damaged, or no bundle of a run: a header does not match its sum")
    prefix, name = (part.partition(b"\0")[0] for part in (head[345:500], head[:100]))
    shown = (prefix + b"/" + name if prefix else name).decode("utf-8", errors="backslashreplace")
    kind = head[156:157]
    if kind not in (b"0", b"\0"):
        what = _OTHER_KINDS.get(kind, f"of an unknown kind ({kind!r})")
        raise FlatoutError(f"{file!r}: {shown!r} is {what}; a bundle holds plain files only, nothing was imported")
    if not _ALLOWED.fullmatch(shown):
        raise FlatoutError(f"{file!r}: {shown!r} is not a file that a run has; nothing was imported")
    size = _SIZE.fullmatch(head[124:136])
    if size is None:
        raise FlatoutError(f"{file!r}: the size of {shown!r} cannot be read; nothing was imported")
    return shown, int(size[1], 8)


class _Source:
    """The unpacked bytes one after the other, never more of them than were allowed."""

    def __init__(self, bundle: IO[bytes], file: str, most_bytes: int) -> None:
        self._file = file
        self._stream = io.BufferedReader(gzip.GzipFile(fileobj=bundle, mode="rb"), 1 << 16)
        # Headers and padding come on top of what the files hold.
        self._most_bytes = most_bytes + (64 << 20)
        self.taken = 0

    def exactly(self, count: int) -> bytes:
        data = self._read(count)
        if len(data) != count:
            raise FlatoutError(f"{self._file!r} ends too early: it was not written or copied whole")
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self.exactly(min(size, _PIECE))
            size -= len(piece)
            yield piece

    def end(self) -> None:
        """Nothing but padding may follow; reading it makes gzip compare its checksum."""
        rest = self._read(_TAIL_BYTES)
        if any(rest) or self._read(1):
            raise FlatoutError(f"{self._file!r} has something behind its end; nothing was imported")

    def _read(self, count: int) -> bytes:
        try:
            data = self._stream.read(count)
        except (OSError, EOFError, zlib.error) as error:
            raise FlatoutError(f"{self._file!r} is damaged, or no bundle of a run: {error}") from error
        self.taken += len(data)
        if self.taken > self._most_bytes:
            raise FlatoutError(f"{self._file!r} unpacks to more than {self._most_bytes:,} bytes; nothing was imported")
        return data
