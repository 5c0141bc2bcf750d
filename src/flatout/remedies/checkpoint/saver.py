"""Takes what `torch.save` writes into memory, and has another process make files of it.

At the call, torch serialises into anonymous memory: what cannot be pickled raises there and then, device tensors come
to the host, views stay views, and whatever changes later changes no byte of it. The rest is copying bytes.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...feed.machine import free_bytes
from . import writer_process
from .target_file import (
    TargetFile,
    disk_free_bytes,
    exists_outside_trial,
    may_be_renamed,
    name_of,
    open_target,
    remove_left_over,
    write_over,
)

# A script that saves faster than the disk writes is slowed down to it, as it is without us.
_MOST_UNDER_WAY = 4
_POLL_S = 0.01
_LONGEST_IN_CHILD_S = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """One file under way to `target`: from `memory` by way of `temporary`, or a rename of that alone."""

    number: int
    target: str
    temporary: str
    # Where the target really lies: in a trial, elsewhere than the script is told.
    folder: str
    memory: int = -1
    size: int = 0
    # Whether the check sums of the archive are still to be made.
    sums: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What a look at a file may be about."""
        return (self.target,) if self.memory >= 0 else (self.temporary, self.target)


class Saver:
    """The checkpoints of this process that are not yet on disk."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # Held while a checkpoint is serialised and handed over.
        self.turn = threading.RLock()
        # Set in a thread that touches files for us: nothing there waits for what is under way.
        self._own = threading.local()
        self._writer: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._memory = CheckpointMemory()
        self._number = 0
        self._tidied: set[str] = set()
        self.pending: dict[int, Job] = {}
        # {target: why}, until somebody has been told.
        self.failures: dict[str, str] = {}
        self.saved = 0
        self.saved_bytes = 0

    @property
    def is_mine(self) -> bool:
        """False in a forked child: what is under way is its parent's."""
        return self._pid == os.getpid()

    @property
    def is_own_call(self) -> bool:
        return getattr(self._own, "calls", False)

    @contextmanager
    def _own_calls(self) -> Iterator[None]:
        before, self._own.calls = self.is_own_call, True
        try:
            yield
        finally:
            self._own.calls = before

    # Saving

    def save(self, path: str, serialise: Callable[[Any], object], sums: bool = False) -> bool:
        """Whether it is under way; if not, nothing has happened and it has to be written as the script would.

        `serialise(file)` writes the checkpoint, without `sums` of its own if we are to make them; what it raises is the
        script's to see.
        """
        self.poll()
        self._wait_for_a_turn()
        self.raise_failures()
        place = self._place(path)
        if place is None:
            return False
        memory = -1
        try:
            memory = self._in_memory(serialise)
            self._hand_over(place, memory, sums)
        except BaseException as error:
            if any(job.memory == memory for job in self.pending.values()):
                raise  # a Ctrl-C behind the hand-over: the writer has it
            with self._own_calls():
                place.drop()
            if memory >= 0:
                os.close(memory)
            if isinstance(error, NoRoom):
                return False
            raise
        place.close()
        return True

    def _wait_for_a_turn(self) -> None:
        with self._own_calls(), self._lock:
            while sum(job.memory >= 0 for job in self.pending.values()) >= _MOST_UNDER_WAY:
                self._hear(wait=True)

    def _place(self, path: str) -> TargetFile | None:
        with self._own_calls(), self._lock:
            try:
                self._number += 1
                place = open_target(path, self._number)
                if place is not None and place.target not in self._tidied:
                    self._tidied.add(place.target)
                    remove_left_over(place.target)
                return place
            except OSError:
                return None  # the plain way has its own words for what is wrong with this path

    def _in_memory(self, serialise: Callable[[Any], object]) -> int:
        try:
            return self._memory.filled(serialise)
        except NoRoom:
            if not self.pending:
                raise
        # What is under way leaves its memory when it is written.
        self.wait_all()
        return self._memory.filled(serialise)

    def _hand_over(self, place: TargetFile, memory: int, sums: bool) -> None:
        size = os.fstat(memory).st_size
        with self._own_calls(), self._lock:
            if size > disk_free_bytes(place.target):
                raise NoRoom
            try:
                channel = self._channel or self._start()
            except OSError as error:
                raise NoRoom from error
            self._number += 1
            job = Job(self._number, place.target, place.temporary, place.folder, memory, size, sums)
            self._send(channel, job, job.folder, [memory, place.descriptor])
            self.saved += 1
            self.saved_bytes += size

    def rename(self, source: str, target: str) -> bool:
        """Rename a file that is still to come when it is there: many a script saves under a passing name.

        False if it has to be waited for instead.
        """
        with self._own_calls(), self._lock:
            old, new = name_of(source), name_of(target)
            to_come = {job.target: job.folder for job in self.pending.values()}
            if self._channel is None or not self.is_mine or old not in to_come or not may_be_renamed(old, new):
                return False
            folder, before, after = to_come[old], os.path.dirname(old), os.path.dirname(new)
            if folder != before and (before != after or exists_outside_trial(old)):
                return False  # a trial, where it takes more than that
            self._number += 1
            job = Job(self._number, new, old, after if folder == before else folder)
            self._send(self._channel, job, folder, [])
            return True

    def _send(self, channel: socket.socket, job: Job, folder: str, descriptors: list[int]) -> None:
        """`folder`: where the temporary file really lies."""
        temporary = os.path.join(folder, os.path.basename(job.temporary))
        target = os.path.join(job.folder, os.path.basename(job.target))
        words = {"number": job.number, "temporary": temporary, "target": target, "sums": job.sums}
        self.pending[job.number] = job
        try:
            socket.send_fds(channel, [json.dumps(words).encode()], descriptors)
        except OSError:
            self._lost_writer()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-I", "-S", writer_process.__file__, str(theirs.fileno())]
            self._writer = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._channel = ours
        return ours

    # Waiting

    def concerns(self, path: Any, below: bool) -> bool:
        """Whether this path, or with `below` anything in this folder, is under way or has failed."""
        if isinstance(path, int):
            return below  # an open folder: which one is not worth finding out
        with self._own_calls():
            real = os.path.realpath(os.fsdecode(path))
        targets = [*(name for job in list(self.pending.values()) for name in job.names), *self.failures]
        return any(real == target or (below and target.startswith(real.rstrip("/") + "/")) for target in targets)

    def wait_all(self) -> None:
        """Until every file is there. Raises if one could not be written."""
        if not self.is_mine:
            self._wait_in_child()
            return
        with self._own_calls(), self._lock:
            while self.pending:
                self._hear(wait=True)
        self.raise_failures()

    def _wait_in_child(self) -> None:
        """A forked child sees its parent's files come: a temporary file goes when it has become the real one."""
        pause = threading.Event()
        rounds = int(_LONGEST_IN_CHILD_S / _POLL_S)
        with self._own_calls():
            while rounds and any(os.path.lexists(job.temporary) for job in self.pending.values()):
                pause.wait(_POLL_S)
                rounds -= 1
        self.pending.clear()

    def poll(self) -> None:
        if self.pending and self.is_mine:
            with self._own_calls(), self._lock:
                while self.pending and self._hear(wait=False):
                    pass

    def raise_failures(self) -> None:
        if self.failures:
            words = "; ".join(f"{target}: {why}" for target, why in self.failures.items())
            self.failures.clear()
            raise RuntimeError(f"a checkpoint could not be written: {words}")

    def _hear(self, wait: bool) -> bool:
        """Take one answer of the writer, if there is one. With `wait`, it is waited for."""
        try:
            answer = self._channel.recv(1 << 16, 0 if wait else socket.MSG_DONTWAIT) if self._channel else b""
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        if not answer:
            self._lost_writer()
            return True
        words = json.loads(answer)
        job = self.pending.pop(words["number"])
        if words["failed"] is not None:
            self._finish_here(job)
        elif job.memory >= 0:
            self._memory.done_with(job.memory, job.size)
        return True

    def _lost_writer(self) -> None:
        """It is gone: somebody has killed it. The bytes are here."""
        self._end_writer()
        for number in sorted(self.pending):
            self._finish_here(self.pending.pop(number))

    def _end_writer(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._writer is not None:
            self._writer.wait()
            self._writer = None

    def _finish_here(self, job: Job) -> None:
        if job.memory >= 0:
            self._write_here(job)
            return
        try:
            writer_process.rename(job.temporary, job.target)
        except OSError as error:
            self.failures[job.target] = str(error)

    def _write_here(self, job: Job) -> None:
        """As atomically, or at least as the script would have."""
        try:
            self._number += 1
            place = open_target(job.target, self._number)
            if place is not None and job.size <= disk_free_bytes(job.target):
                try:
                    writer_process.write_file(job.memory, place.descriptor, place.temporary, job.target, job.sums)
                finally:
                    place.close()
            else:
                if place is not None:
                    place.drop()
                write_over(job.target, job.memory, job.size, place.size_before if place is not None else 0)
        except OSError as error:
            self.failures[job.target] = str(error)
        finally:
            os.close(job.memory)
            writer_process.remove(job.temporary)

    def finish(self) -> None:
        """Everything on disk, and the writer gone."""
        if not self.is_mine:
            return
        with self._own_calls(), self._lock:
            while self.pending:
                self._hear(wait=True)
            self._end_writer()
            self._memory.close()
        if self.failures:
            sys.stderr.write(f"flatout: checkpoints could not be written: {self.failures}\n")
            self.failures.clear()


# Anonymous memory that checkpoints are serialised into. It is kept for the next checkpoint where it is small.

# Of the memory that is left, what a checkpoint may take, and what may lie there between two for the next one.
_MOST, _MOST_KEPT = 0.5, 1 / 32


class NoRoom(Exception):
    """The checkpoint does not fit into memory a second time."""


class _Limited(io.BufferedWriter):
    """Memory to write into, up to a size. What is over is dropped: torch's writer does not bear an error midway."""

    def __init__(self, memory: int, most: int | None) -> None:
        super().__init__(io.FileIO(memory, "wb", closefd=False), 1 << 20)
        self._left = sys.maxsize if most is None else most

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def write(self, data: Any) -> int:
        self._left -= len(data)
        return len(data) if self.is_over else super().write(data)


class CheckpointMemory:
    """Each piece is a descriptor of its own, with one checkpoint in it."""

    def __init__(self) -> None:
        # Of checkpoints that are written: one at most. Without a lock: a script may save in a signal's handler, too.
        self._spare: list[int] = []

    def filled(self, serialise: Callable[[Any], object]) -> int:
        """What `serialise(file)` writes. Raises NoRoom, and whatever it raises."""
        room = free_bytes()
        try:
            memory = self._empty()
        except OSError as error:
            raise NoRoom from error
        try:
            with _Limited(memory, None if room is None else int(_MOST * room)) as file:
                serialise(file)
                if file.is_over:
                    raise NoRoom
            os.ftruncate(memory, os.lseek(memory, 0, os.SEEK_CUR))
        except BaseException:
            os.close(memory)
            raise
        return memory

    def _empty(self) -> int:
        try:
            memory = self._spare.pop()
        except IndexError:
            return os.memfd_create("flatout-checkpoint", os.MFD_CLOEXEC)
        os.lseek(memory, 0, os.SEEK_SET)
        return memory

    def done_with(self, memory: int, size: int) -> None:
        """Kept for the next checkpoint where it is little, for fresh memory is slow; else freed, which is slow as well:
        not while the training waits.
        """
        room = free_bytes()
        if not self._spare and (room is None or size <= _MOST_KEPT * room):
            self._spare.append(memory)
            return
        try:
            threading.Thread(target=os.close, args=(memory,), name="flatout-frees", daemon=True).start()
        except RuntimeError:
            os.close(memory)  # at the end of the script, which may start no more threads

    def close(self) -> None:
        while self._spare:
            os.close(self._spare.pop())
