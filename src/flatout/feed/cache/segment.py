"""The file in shared memory that all processes of a host map: who has it open, who may write, how much of it is real.

Nothing here depends on a process ending well. Who is alive is told by locks on byte ranges, which the kernel releases
when their holder dies: every process holds one byte of the file for as long as it has it open, and the writer holds
another. A file of which no byte is held has no owner left, and the next start removes it. Locks belong to the open
file, not to the process (OFD), so a forked child opens the file anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from enum import IntEnum

from ...records.message import message
from ..reasons import Reasoned, error_text

HEADER_WORDS = 512
WORDS_PER_LINE = 8
PROCESSES = 1024
COUNTERS_AT = HEADER_WORDS
TABLE_AT = COUNTERS_AT + PROCESSES * WORDS_PER_LINE
PREFIX = "flatout-cache-"
SHARED_MEMORY = "/dev/shm"
# Of a sample; free room has worth 0.
MOST_WORTH = (1 << 62) - 1
_MAGIC = int.from_bytes(b"flatout1", "little")
_WRITER_BYTE, _FIRST_PROCESS_BYTE = 0, 1
_CHUNK_BYTES = 64 << 20
_PAGE_BYTES = 4096
# type, whence, start, length, pid
_LOCK = struct.Struct("@hhqqi4x")
_PATIENCE_S = 2.0
_FULL_FOR_S = 5.0


class Word(IntEnum):
    """Places in the header, in words of eight bytes."""

    MAGIC = 0
    SAMPLES = 1
    DATA_AT = 2
    DATA_BYTES = 3
    ALLOCATED = 4
    USED = 5
    ITEMS = 6
    LIVE_BYTES = 7
    NEWCOMER = 8
    VICTIM = 9
    PLACE = 10
    CAPACITY = 11
    PLAN = 12
    TOLD = 13
    FORESEEN_HITS = 14
    FORESEEN_AGAIN = 15


class Counter(IntEnum):
    """Places in a process's own line. A process that takes the line over continues the counts."""

    HITS = 0
    MISSES = 1
    FIRST_READS = 2
    CORRUPT = 3
    NOT_ADMITTED = 4
    NOT_FLAT = 5
    EVICTIONS = 6
    LOCK_TIMEOUTS = 7


class Field(IntEnum):
    """Places in a sample's line. HEAD holds the length of the head above, the CRC below."""

    GENERATION = 0
    PLACE = 1
    CAPACITY = 2
    NBYTES = 3
    HEAD = 4
    WORTH = 5
    COST_NS = 6
    LAYOUT = 7


class Unavailable(Reasoned):
    """There can be no cache."""


class Segment:
    """One mapped file. `words` and `data` are views of the same bytes."""

    def __init__(self, path: str, fd: int, process: int) -> None:
        self.path = path
        self._fd = fd
        self._process = process
        # Where this process's own line of counters is.
        self.counters_at = COUNTERS_AT + process * WORDS_PER_LINE
        self._threads = threading.Lock()
        self._full_until_s = 0.0
        size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, size)
        self.data = memoryview(self._map)
        self.words = self.data[: TABLE_AT * 8].cast("Q")
        self.samples = self.words[Word.SAMPLES]
        if self.words[Word.MAGIC] != _MAGIC or size != self.words[Word.DATA_AT] + self.words[Word.DATA_BYTES]:
            raise Unavailable(message("cache.other_version", path=path))
        self.words = self.data[: (TABLE_AT + self.samples * WORDS_PER_LINE) * 8].cast("Q")
        _open.add(self)

    def count(self, counter: Counter) -> None:
        self.words[self.counters_at + counter] += 1

    def total(self, counter: Counter) -> int:
        """Over all processes that ever had the file open."""
        return sum(self.words[COUNTERS_AT + counter : TABLE_AT : WORDS_PER_LINE])

    @contextlib.contextmanager
    def writing(self, patience_s: float = 0.05) -> Iterator[bool]:
        """Holds the writers' lock; False if another holds it too long: a stopped process must not stop others."""
        deadline = time.monotonic() + patience_s
        if self._fd < 0 or not self._threads.acquire(timeout=patience_s):
            yield False
            return
        try:
            held = _try_lock(self._fd, _WRITER_BYTE, 1)
            while not held and time.monotonic() < deadline:
                time.sleep(0.0005)
                held = _try_lock(self._fd, _WRITER_BYTE, 1)
            try:
                yield held
            finally:
                if held:
                    _unlock(self._fd, _WRITER_BYTE, 1)
        finally:
            self._threads.release()

    def fence(self) -> None:
        """What was written before is seen by other cores before what is written after.

        Two releases of a lock with an acquire between: needed where stores may overtake each other (ARM).
        """
        with _FENCE:
            pass
        with _FENCE:
            pass

    def grow(self, wanted_bytes: int, may_take: Callable[[int], bool]) -> bool:
        """Make at least `wanted_bytes` more of the data real; the writers' lock is held.

        Only what has been allocated is ever touched: a full tmpfs then says so here, instead of SIGBUS at a write.
        """
        if time.monotonic() < self._full_until_s:
            return False
        allocated = self.words[Word.ALLOCATED]
        left = self.words[Word.DATA_BYTES] - allocated
        chunk = min(left, max(_CHUNK_BYTES, wanted_bytes + -wanted_bytes % _PAGE_BYTES))
        for size in (chunk, min(left, wanted_bytes + -wanted_bytes % _PAGE_BYTES)):
            if size < wanted_bytes or not may_take(size):
                continue
            try:
                os.posix_fallocate(self._fd, self.words[Word.DATA_AT] + allocated, size)
            except OSError:
                continue
            self.words[Word.ALLOCATED] = allocated + size
            return True
        # Asking costs more than a miss should; it is asked again later.
        self._full_until_s = time.monotonic() + _FULL_FOR_S
        return False

    def forked(self) -> None:
        """In a forked child: the open file is the parent's, locks and all; open it anew."""
        inherited, self._threads = self._fd, threading.Lock()
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(f"/proc/self/fd/{inherited}", os.O_RDWR | os.O_CLOEXEC)
            process = _claim(self._fd)
            if process is not None:
                self._process = process
                self.counters_at = COUNTERS_AT + process * WORDS_PER_LINE
        with contextlib.suppress(OSError):
            os.close(inherited)

    def close(self) -> None:
        """Let go; the last one out removes the file."""
        if self._fd < 0:
            return
        _open.discard(self)
        fd, self._fd = self._fd, -1
        _unlock(fd, _FIRST_PROCESS_BYTE + self._process, 1)
        _remove_if_unowned(self.path, fd)
        os.close(fd)
        with contextlib.suppress(BufferError):
            self.words.release()
            self.data.release()
            self._map.close()


def open_segment(folder: str, name: str, samples: int, budget_bytes: int) -> Segment:
    """Join the segment of that name, or make it. Raises Unavailable with the reason."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        raise Unavailable(message("cache.no_locks"))
    path = os.path.join(folder, name)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        joined = _join(path) or _make(path, samples, budget_bytes)
        if joined is not None:
            if joined.samples == samples:
                return joined
            joined.close()
            raise Unavailable(message("cache.other_samples", path=path, there=joined.samples, wanted=samples))
        if time.monotonic() > deadline:
            raise Unavailable(message("cache.too_many_processes", path=path, most=PROCESSES))
        time.sleep(0.005)


def reap(folder: str) -> list[str]:
    """Remove this user's segments whose owners are all dead; returns their paths."""
    own = f"{PREFIX}{os.geteuid()}-"
    reaped = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(own))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        if ".plan" in name:
            continue
        with contextlib.suppress(OSError, Unavailable):
            fd = _checked(path)
            try:
                if _remove_if_unowned(path, fd):
                    reaped.append(path)
            finally:
                os.close(fd)
    return reaped


def _join(path: str) -> Segment | None:
    """None where there is no such file, or its removal is under way."""
    try:
        fd = _checked(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(message("cache.cannot_open", path=path, error=error.strerror)) from error
    process = _claim(fd)
    # Between the opening and the claim it may have been removed as unowned.
    if process is None or os.fstat(fd).st_nlink == 0:
        os.close(fd)
        return None
    try:
        return Segment(path, fd, process)
    except Unavailable:
        os.close(fd)
        raise
    except (OSError, ValueError, IndexError) as error:
        os.close(fd)
        raise Unavailable(error_text(error)) from error


def _make(path: str, samples: int, budget_bytes: int) -> Segment | None:
    """Made ready under another name, so that nobody ever opens half a header. None where another was quicker."""
    table_bytes = (TABLE_AT + samples * WORDS_PER_LINE) * 8
    data_at = table_bytes + -table_bytes % _PAGE_BYTES
    data_bytes = (budget_bytes - data_at) // _PAGE_BYTES * _PAGE_BYTES
    if data_bytes <= 0:
        raise Unavailable(message("cache.small_budget", budget=budget_bytes, samples=samples))
    unready = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        fd = os.open(unready, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Unavailable(message("cache.cannot_make", path=unready, error=error.strerror)) from error
    try:
        process = _claim(fd)
        assert process is not None, "nobody else knows that name"
        os.ftruncate(fd, data_at + data_bytes)
        first = min(data_bytes, _CHUNK_BYTES)
        os.posix_fallocate(fd, 0, data_at + first)
        words = {Word.MAGIC: _MAGIC, Word.SAMPLES: samples, Word.DATA_AT: data_at, Word.DATA_BYTES: data_bytes}
        words[Word.ALLOCATED] = first
        os.pwrite(fd, b"".join(words.get(word, 0).to_bytes(8, "little") for word in Word), 0)
        try:
            os.link(unready, path)
        except FileExistsError:
            os.close(fd)
            return None
        return Segment(path, fd, process)
    except OSError as error:
        os.close(fd)
        folder = os.path.dirname(path)
        raise Unavailable(message("cache.folder_full", folder=folder, error=error.strerror)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unready)


def _checked(path: str) -> int:
    """Open what is ours alone: another user may have put a file of that name there."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    facts = os.fstat(fd)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        os.close(fd)
        mode = f"{facts.st_mode & 0o777:o}"
        raise Unavailable(message("cache.not_ours", path=path, user=facts.st_uid, mode=mode))
    return fd


def _claim(fd: int) -> int | None:
    """The number of a free process line, held from now on; None where all are held."""
    start = os.getpid() % PROCESSES
    for process in itertools.chain(range(start, PROCESSES), range(start)):
        if _try_lock(fd, _FIRST_PROCESS_BYTE + process, 1):
            return process
    return None


def _remove_if_unowned(path: str, fd: int) -> bool:
    """While all the processes' bytes are held here, nobody can join."""
    if not _try_lock(fd, _FIRST_PROCESS_BYTE, PROCESSES):
        return False
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
            os.unlink(path)
            _remove_plans(path)
    _unlock(fd, _FIRST_PROCESS_BYTE, PROCESSES)
    return True


def _remove_plans(path: str) -> None:
    folder, name = os.path.split(path)
    for other in os.listdir(folder):
        if other.startswith(f"{name}.plan"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, other))


def _try_lock(fd: int, start: int, length: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
    except OSError:
        return False
    return True


def _unlock(fd: int, start: int, length: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))


def _forked() -> None:
    global _FENCE
    _FENCE = threading.Lock()
    for segment in list(_open):
        segment.forked()


_open: weakref.WeakSet[Segment] = weakref.WeakSet()
_FENCE = threading.Lock()
os.register_at_fork(after_in_child=_forked)
