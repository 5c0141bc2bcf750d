"""Copies of the user's files, made where the trial is to change them."""

from __future__ import annotations

import errno
import itertools
import os
import posix
import stat

_numbers = itertools.count()
_AT_ONCE = 1 << 30


def copy_file(source: str, target: str, known: os.stat_result, scratch: str, empty: bool = False) -> None:
    """Made aside and put in place whole, for others may look for it; whoever is first wins."""
    aside = f"{scratch}/copying-{os.getpid()}-{next(_numbers)}"
    out = posix.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if not empty:
            _copy_content(source, out)
        posix.chmod(out, stat.S_IMODE(known.st_mode))
        posix.utime(out, ns=(known.st_atime_ns, known.st_mtime_ns))
    finally:
        posix.close(out)
    try:
        posix.link(aside, target)
    except FileExistsError:
        pass
    except OSError:
        posix.rename(aside, target)  # a file system without hard links
        return
    posix.unlink(aside)


def _copy_content(source: str, out: int) -> None:
    into = posix.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while _some(into, out):
            pass
    finally:
        posix.close(into)


def _some(into: int, out: int) -> int:
    try:
        # Shares the blocks instead of copying them where the file system can.
        return posix.copy_file_range(into, out, _AT_ONCE)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            raise
    return posix.sendfile(out, into, None, _AT_ONCE)


def copy_times(known: os.stat_result, target: str) -> None:
    posix.utime(target, ns=(known.st_atime_ns, known.st_mtime_ns))


def move_tree(source: str, target: str) -> None:
    """A rename between file systems."""
    known = posix.lstat(source)
    if stat.S_ISDIR(known.st_mode):
        posix.mkdir(target, 0o700)
        for name in posix.listdir(source):
            move_tree(f"{source}/{name}", f"{target}/{name}")
        posix.chmod(target, stat.S_IMODE(known.st_mode))
        copy_times(known, target)
        posix.rmdir(source)
        return
    aside = f"{target}.moving-{os.getpid()}-{next(_numbers)}"
    if stat.S_ISLNK(known.st_mode):
        posix.symlink(posix.readlink(source), aside)
    else:
        copy_file(source, aside, known, target.rpartition("/")[0] or "/")
    posix.replace(aside, target)
    posix.unlink(source)
