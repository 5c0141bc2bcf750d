"""Writes a file as a whole or not at all: a reader sees the old one or the new one, never half of it.

The new file is made beside the old one, because a rename within a folder is one step for everybody who looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TRIES = 100
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Permissions for files that may hold what only their owner should read, and for those that others are to use.
PRIVATE, SHARED = 0o600, 0o644


def write_atomic(file: Path | str, data: bytes | str, *, mode: int | None = None, durable: bool = False) -> None:
    """Replace `file` by `data`; text is written as UTF-8, line ends as they are. See `atomic_file`."""
    with atomic_file(file, mode=mode, durable=durable) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def atomic_file(file: Path | str, *, mode: int | None = None, durable: bool = False) -> Iterator[Path]:
    """An empty file to write to, which takes the place of `file` when the block ends well and is removed if not.

    `mode` are its permissions; None: those of any file that the user makes. With `durable` the bytes are on the disk
    before the old file goes.
    """
    file = Path(file)
    temporary = _make_empty(file, mode)
    try:
        yield temporary
        if durable:
            _flush_to_disk(temporary)
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _make_empty(file: Path, mode: int | None) -> Path:
    for attempt in range(_TRIES):
        temporary = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
        try:
            # Without a mode the kernel takes the user's umask off, so that nobody has to ask for it.
            handle = os.open(temporary, _NEW, 0o666 if mode is None else PRIVATE)
        except FileExistsError:
            if attempt + 1 == _TRIES:
                raise
            continue
        try:
            if mode is not None:
                os.fchmod(handle, mode)
        finally:
            os.close(handle)
        return temporary
    raise AssertionError("unreachable")


def _flush_to_disk(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
