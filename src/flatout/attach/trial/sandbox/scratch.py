"""The scratch folder: the journal shared by all processes of a trial, copies of files, and places left alone."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import posix
import stat
import time
from collections.abc import Iterable, Mapping, Sequence

_WORDS = 2
_TOKEN, _HIDES = 0, 1


class Journal:
    def __init__(self, folder: str) -> None:
        self._log = f"{folder}/overlay-gone"
        descriptor = posix.open(f"{folder}/overlay-state", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            posix.ftruncate(descriptor, _WORDS * 8)
            shared = mmap.mmap(descriptor, _WORDS * 8)
        finally:
            posix.close(descriptor)
        # words[0] is 0 until anything is written, then another number after every change; words[1] is not 0 once an
        # original was replaced or removed: until then a link to one can be trusted.
        self.words = memoryview(shared).cast("Q")
        self.gone: set[str] = set()
        self._read = 0

    def announce_change(self) -> None:
        """Tell every process. A fresh number each time, so no two writers at once can hide each other's change."""
        self.words[_TOKEN] = (time.monotonic_ns() << 16 | os.getpid() & 0xFFFF) & 0xFFFF_FFFF_FFFF_FFFF

    def note_hidden(self) -> None:
        self.words[_HIDES] = 1

    def white_out(self, path: str) -> None:
        """The original at `path`, with all below, is not to be seen any more."""
        descriptor = posix.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            posix.write(descriptor, os.fsencode(path) + b"\0")
        finally:
            posix.close(descriptor)
        self.gone.add(path)
        self.note_hidden()
        self.announce_change()

    def catch_up(self) -> None:
        begun = self._read
        try:
            if posix.stat(self._log).st_size == begun:
                return
            descriptor = posix.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            size = posix.fstat(descriptor).st_size
            text = posix.pread(descriptor, size - begun, begun)
        finally:
            posix.close(descriptor)
        whole = text.rfind(b"\0") + 1
        self._read = begun + whole
        self.gone.update(os.fsdecode(path) for path in text[:whole].split(b"\0") if path)


# Copies of the user's files, for the trial to change.

_numbers = itertools.count()
_AT_ONCE = 1 << 30


def copy_file(source: str, target: str, known: os.stat_result, scratch: str, empty: bool = False) -> None:
    """Written aside and put in place whole, because other processes may look for it; the first one wins."""
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
        while _copy_some(into, out):
            pass
    finally:
        posix.close(into)


def _copy_some(into: int, out: int) -> int:
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


# Which folders a trial may really write to: temporary ones and caches of tools. All others are the user's.

_ALWAYS = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/usr/tmp")
_IN_HOME = (".cache", ".triton", ".nv")
_NAMED_BY = (
    "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PYTHONPYCACHEPREFIX",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME",
    "CUDA_CACHE_PATH",
    "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TRANSFORMERS_CACHE",
    "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "FLATOUT_RUN_DIR", "FLATOUT_CARRIED",
)  # fmt: skip
_COMPILED = "__pycache__"


class Places:
    """The nearest folder above a path that is marked decides; what has none is contained."""

    def __init__(self, scratch: str, roots: Sequence[str], environ: Mapping[str, str]) -> None:
        # Later marks win: a root that is the temporary folder itself stays writable, because sockets live there.
        self._contained: dict[str, bool] = {}
        self._mark(roots, True)
        # Folders that may be written to, and hold one that may not.
        self.around = frozenset(folder.rpartition("/")[0] for folder in self._contained)
        self._mark(_exempt(environ), False)
        self._mark([scratch], False)

    def _mark(self, folders: Iterable[str], contained: bool) -> None:
        for folder in folders:
            # By both names: the one it is known by and, through links, where it lies.
            for name in (os.path.abspath(folder), os.path.realpath(folder)):
                self._contained[name] = contained

    def is_contained(self, path: str) -> bool:
        """Of a path that is absolute and free of links."""
        at, compiled = path, False
        while at not in ("", "/"):
            contained = self._contained.get(at)
            if contained is not None:
                return contained
            above, _, name = at.rpartition("/")
            compiled = compiled or name == _COMPILED
            at = above
        # Compiled modules of installed packages; those of the user's own folders are contained with them.
        return not compiled


def is_system_path(path: str) -> bool:
    """Links below these are not what they seem (`/proc/self/fd/1` → `pipe:[7]`)."""
    return path.startswith(("/proc/", "/dev/", "/sys/"))


def _exempt(environ: Mapping[str, str]) -> list[str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    named = [environ[name] for name in _NAMED_BY if environ.get(name)]
    return [*_ALWAYS, *(f"{home}/{folder}" for folder in _IN_HOME), *named]


def path_of_descriptor(descriptor: int) -> str | None:
    """The path of an open file or folder, where the system knows one."""
    try:
        path = posix.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if path.startswith("/") and not path.endswith(" (deleted)") else None
