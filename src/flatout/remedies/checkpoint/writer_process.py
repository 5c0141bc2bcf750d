"""The process that writes checkpoints: takes finished bytes in memory, and makes a file of them in one moment.

Run by its path, standard library only. It is started anew and not forked off the training: a fork would take along the
state of CUDA and of every thread, and each page that the training then writes to would be copied. It never unpickles
what it writes. It outlives a training that is killed until all that was handed over is on disk, and hears no Ctrl-C.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import socket
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator

_PIECE_BYTES = 16 << 20
_MESSAGE_BYTES = 1 << 16
# Of the archive's format: where a check sum stands, and what is before it.
_LOCAL_BYTES, _LOCAL_LENGTHS = 30, 26
_CENTRAL_BYTES, _CENTRAL_SUM, _CENTRAL_LENGTHS = 46, 16, 28
_AFTER_DATA = b"PK\x07\x08"


def write_file(memory: int, temporary: int, temporary_path: str, target: str, sums: bool) -> None:
    """The bytes of `memory` into `temporary`, down to the disk, and under the name `target` when they are there.

    With `sums` the archive has none yet: making them took torch as long as all the rest, so it is done here.
    """
    try:
        _copy(memory, temporary, os.fstat(memory).st_size)
        if sums:
            for offset, number in check_sums(memory):
                os.pwrite(temporary, struct.pack("<I", number), offset)
        os.fsync(temporary)
        os.rename(temporary_path, target)
    except BaseException:
        remove(temporary_path)
        raise
    _sync_folder(os.path.dirname(target))


def rename(source: str, target: str) -> None:
    os.rename(source, target)
    _sync_folder(os.path.dirname(target))


def _copy(source: int, destination: int, size: int) -> None:
    done = 0
    while done < size:
        done += _send(source, destination, done, min(_PIECE_BYTES, size - done))


def _send(source: int, destination: int, offset: int, size: int) -> int:
    try:
        sent = os.sendfile(destination, source, offset, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        sent = os.pwrite(destination, os.pread(source, size, offset), offset)
    if sent == 0:
        raise OSError(errno.EIO, "no more bytes could be written")
    return sent


def check_sums(memory: int) -> list[tuple[int, int]]:
    """Where in the archive which check sum belongs. None at all if it is not as expected: torch reads it anyway."""
    try:
        with mmap.mmap(memory, 0, prot=mmap.PROT_READ) as view, memoryview(view) as data:
            return list(_sums(memory, data))
    except (zipfile.BadZipFile, struct.error, ValueError, OSError):
        return []


def _sums(memory: int, data: memoryview) -> Iterator[tuple[int, int]]:
    with os.fdopen(os.dup(memory), "rb") as file, zipfile.ZipFile(file) as archive:
        central = archive.start_dir
        for entry in archive.infolist():
            name_bytes, extra_bytes = struct.unpack_from("<HH", data, entry.header_offset + _LOCAL_LENGTHS)
            begin = entry.header_offset + _LOCAL_BYTES + name_bytes + extra_bytes
            end = begin + entry.compress_size
            if entry.CRC == 0 and entry.compress_type == zipfile.ZIP_STORED and data[end : end + 4] == _AFTER_DATA:
                with data[begin:end] as stored:
                    number = zlib.crc32(stored)
                yield end + len(_AFTER_DATA), number
                yield central + _CENTRAL_SUM, number
            central += _CENTRAL_BYTES + sum(struct.unpack_from("<HHH", data, central + _CENTRAL_LENGTHS))


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it is not there, or the next save to this name takes it away


def _sync_folder(folder: str) -> None:
    """So that the new name survives a power cut as well; some file systems cannot, and the file is there anyway."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        pass
    finally:
        os.close(opened)


def serve(channel: socket.socket) -> None:
    """Write or rename one file after the other until the training hangs up."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        if not message:
            return
        job = json.loads(message)
        failed: list[object] | None = None
        try:
            if descriptors:
                write_file(descriptors[0], descriptors[1], job["temporary"], job["target"], job["sums"])
            else:
                rename(job["temporary"], job["target"])
        except OSError as error:
            failed = [error.errno, error.strerror or str(error)]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            channel.send(json.dumps({"number": job["number"], "failed": failed}).encode())
        except OSError:
            pass  # nobody is left to hear it
        if failed is not None:
            return  # what comes after it may count on it: the training does the rest itself, in its order


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
