"""Where a checkpoint goes, and whether a new file may take the place of the one that is there.

A new file under an old name differs from an old file written over: in its owner, its links, its attributes. Where any
of that would show, the answer is None and the file is written as the script would.
"""

from __future__ import annotations

import fcntl
import os
import posix
import stat
from dataclasses import dataclass

_MARK = ".flatout-"


@dataclass(frozen=True, slots=True)
class TargetFile:
    """An open temporary file beside the file it will replace."""

    target: str
    temporary: str
    descriptor: int
    # Of the file that is there now; 0 where there is none.
    size_before: int

    @property
    def folder(self) -> str:
        """Where both really lie. What a trial writes goes elsewhere, and the process that writes knows nothing of it:
        `posix` does not either, `os` does.
        """
        try:
            behind, name = os.path.split(posix.readlink(f"/proc/self/fd/{self.descriptor}"))
        except OSError:
            behind = name = ""
        folder, own_name = os.path.split(self.temporary)
        return behind if name == own_name else folder

    def close(self) -> None:
        os.close(self.descriptor)

    def drop(self) -> None:
        """Nothing will come of it."""
        self.close()
        try:
            os.unlink(self.temporary)
        except FileNotFoundError:
            pass


def open_target(path: str, number: int) -> TargetFile | None:
    """None if it has to be written as the script would."""
    target = os.path.realpath(path)
    before = _there(target)
    if before is not None and not _may_be_replaced(target, before):
        return None
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}{_MARK}{os.getpid()}-{number}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    place = TargetFile(target, temporary, descriptor, before.st_size if before is not None else 0)
    try:
        _lock(descriptor)
        if before is not None and not _made_alike(descriptor, before):
            place.drop()
            return None
    except BaseException:
        place.drop()
        raise
    return place


def _there(target: str) -> os.stat_result | None:
    try:
        return os.lstat(target)
    except FileNotFoundError:
        return None


def _may_be_replaced(target: str, before: os.stat_result) -> bool:
    """An ordinary file of our own, with one name, that could be written over as well."""
    return (
        stat.S_ISREG(before.st_mode)
        and before.st_nlink == 1
        and before.st_uid == os.geteuid()
        and os.access(target, os.W_OK)
        and not any(not name.startswith("security.") for name in _attributes(target))
        and not _is_open_here(before)
    )


def _is_open_here(file: os.stat_result) -> bool:
    """Whoever has it open would go on with the old file, instead of seeing the new bytes in it."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.fstat(int(name)), file):
                return True
        except OSError:
            pass  # closed by now, as the one is that listed them
    return False


def _attributes(target: str) -> list[str]:
    try:
        return os.listxattr(target)
    except OSError:
        return []  # a file system without them


def _made_alike(descriptor: int, before: os.stat_result) -> bool:
    if os.fstat(descriptor).st_gid != before.st_gid:
        try:
            os.fchown(descriptor, -1, before.st_gid)
        except OSError:
            return False
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    return True


def may_be_renamed(source: str, target: str) -> bool:
    """Whether a file that is still to come can be promised this name: nothing is wrong with it that could be known."""
    folder = os.path.dirname(target)
    there = _there(target)
    return (
        os.path.isdir(folder)
        and os.stat(folder).st_dev == os.stat(os.path.dirname(source)).st_dev
        and os.access(folder, os.W_OK | os.X_OK)
        and (there is None or stat.S_ISREG(there.st_mode))
    )


def exists_outside_trial(path: str) -> bool:
    """In a trial: whether it is the user's own file, which shows when what lies over it is gone."""
    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def target_of(name: str) -> str:
    """The file that one of ours is on its way to become; any other is itself."""
    folder, own_name = os.path.split(name)
    target, mark, _ = own_name.rpartition(_MARK)
    return os.path.join(folder, target[1:]) if mark and target.startswith(".") else name


def name_of(path: str) -> str:
    """The full name of a directory's entry, whatever it is; a link is not followed."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _lock(descriptor: int) -> None:
    """Held by whoever has the file open, here or in the process that writes: so it is known whether one still lives."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass  # a file system without locks: then nothing is ever taken away as left over


def remove_left_over(target: str) -> None:
    folder, name = os.path.split(target)
    for entry in os.listdir(folder):
        if entry.startswith(f".{name}{_MARK}"):
            _remove_if_nobody_has_it(os.path.join(folder, entry))


def _remove_if_nobody_has_it(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        pass  # somebody writes it, or it is gone
    finally:
        os.close(descriptor)


def disk_free_bytes(path: str) -> int:
    there = os.statvfs(os.path.dirname(path))
    return there.f_bavail * there.f_frsize


def write_over(target: str, memory: int, size: int, size_before: int) -> None:
    """In place: there is no room for a second file. What cannot fit is not begun: the old file stays."""
    if size > disk_free_bytes(target) + size_before:
        raise OSError(28, f"no space left for {size} bytes", target)
    with open(target, "wb") as file:
        offset = 0
        while offset < size:
            offset += file.write(os.pread(memory, 16 << 20, offset))
