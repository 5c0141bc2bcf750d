"""A loader's worker processes: started, replaced when they die, sent home, and never left behind."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import reduction
from pickle import PicklingError
from typing import Any

from . import worker
from .memory import SEATS, Memory
from .messages import LOOK, write_retire

MAIN_SEAT = SEATS - 1
_CHANNEL_BYTES = 1 << 21
_GRACE_S = 2.0
_GRACE_AT_EXIT_S = 0.5
_AFTER_TERMINATE_S = 0.3


@dataclass(frozen=True, slots=True)
class Member:
    """One worker process."""

    worker: int
    seat: int
    process: Any

    def ending(self) -> str:
        """How it ended, for people."""
        code = self.process.exitcode
        if code is None:
            return "ended"
        if code >= 0:
            return f"exited with code {code}"
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        hint = ", which is also how the kernel ends a process when memory runs out" if -code == signal.SIGKILL else ""
        return f"was ended by {name}{hint}"


class Descriptor:
    """A file descriptor that can be sent to a process being started."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return _received, (reduction.DupFd(self._descriptor),)


def _received(duplicate: Any) -> Any:
    return duplicate


class Crew:
    """The workers of one loader, and the two channels they share."""

    def __init__(self, context: Any, orders: worker.Orders, memory: Memory) -> None:
        self.memory = memory
        self.members: dict[int, Member] = {}
        self.leaving = 0
        self.tasks, self._tasks_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.first_tasks, self._first_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answers_in, self.answers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tasks.setblocking(False)
        self.first_tasks.setblocking(False)
        self.answers.setblocking(False)
        for end in (self.tasks, self._answers_in):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHANNEL_BYTES)  # or what the system allows
        # Limits in the kernel: only there does one packet wake one waiting worker. Python's own would wake them all.
        limit = struct.pack("@ll", worker.LOOK_FOR_PARENT_S, 0)
        self._tasks_out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._answers_in.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._context = context
        self._orders = orders
        self._incarnation = 0
        self._owner = os.getpid()
        self._poller = select.poll()
        self._poller.register(self.answers, select.POLLIN)
        self._closed = False
        _crews.add(self)

    # Joining and leaving

    def grow(self, count: int, base_seed: int | None) -> None:
        """Start workers until there are `count` that stay."""
        self._orders = replace(self._orders, workers=count, base_seed=base_seed)
        self.fill_up(count + self.leaving)

    def fill_up(self, count: int) -> None:
        """Replace workers that have left, up to `count` including those that still have to leave."""
        while len(self.members) < count:
            self._hire(next(number for number in range(SEATS) if number not in self.members))

    def _hire(self, number: int) -> None:
        seat = self._free_seat()
        self._incarnation += 1
        self.memory.forget_seat(seat)
        forked = self._context.get_start_method() == "fork"
        orders = replace(
            self._orders,
            worker=number,
            seat=seat,
            incarnation=self._incarnation,
            # The signal comes when the thread that started the worker ends: only the main one lives to the end.
            dies_with_parent=threading.current_thread() is threading.main_thread(),
        )
        memory: Any = self.memory.descriptor if forked else Descriptor(self.memory.descriptor)
        unwanted = [self.tasks, self.first_tasks, self.answers] if forked else []
        channels = worker.Channels(self._tasks_out, self._first_out, self._answers_in)
        process = self._context.Process(target=worker.main, args=(orders, channels, memory, unwanted), daemon=True)
        try:
            process.start()
        except (TypeError, AttributeError, PicklingError) as error:
            self.shutdown(0.0)
            raise TypeError(
                f"the loader's workers cannot be started by {self._context.get_start_method()!r}: {error}. Define the "
                f"dataset's class, collate_fn and worker_init_fn at the top level of a module, or use "
                f"multiprocessing_context='fork'"
            ) from error
        self.members[number] = Member(number, seat, process)
        self._poller.register(process.sentinel, select.POLLIN)

    def _free_seat(self) -> int:
        taken = {member.seat for member in self.members.values()}
        free = [seat for seat in range(MAIN_SEAT) if seat not in taken]
        # Batches of a worker that left may still be in use.
        return next((seat for seat in free if self.memory.taken_by(seat) == 0), free[-1])

    def replace_member(self, member: Member) -> None:
        """Start another worker in the place of a dead one."""
        self.remove(member)
        self._hire(member.worker)

    def remove(self, member: Member) -> None:
        self._poller.unregister(member.process.sentinel)
        del self.members[member.worker]
        member.process.join()

    # What is going on

    def wait(self, timeout_s: float, tasks_too: bool) -> bool:
        """Until an answer arrives, a worker ends, or a task can be sent; False if none of that happened."""
        if tasks_too:
            self._poller.register(self.tasks, select.POLLOUT)
        try:
            return bool(self._poller.poll(max(0.0, timeout_s) * 1000))
        finally:
            if tasks_too:
                self._poller.unregister(self.tasks)

    def ended(self) -> list[Member]:
        """Workers that died. Those that were let go are forgotten quietly."""
        dead = []
        for member in list(self.members.values()):
            if not _has_ended(member.process):
                continue
            member.process.join(_AFTER_TERMINATE_S)  # its files are closed a moment before its code can be read
            # Where the script ignores SIGCHLD nobody learns the code.
            code = member.process.exitcode
            if not code and self.leaving:
                self.leaving -= 1
                self.remove(member)
            else:
                dead.append(member)
        return dead

    def send_first(self, packet: bytes) -> None:
        """Send a task that is taken before all others; raises BlockingIOError if there are too many."""
        self.first_tasks.send(packet)
        try:
            self.tasks.send(LOOK)
        except BlockingIOError:
            pass  # nobody sleeps: there is more to do than the channel holds

    def take_back_tasks(self) -> list[bytes]:
        """All tasks that no worker has taken yet."""
        packets = []
        for channel in (self._first_out, self._tasks_out):
            while True:
                try:
                    packets.append(channel.recv(1 << 17, socket.MSG_DONTWAIT))
                except BlockingIOError:
                    break
        return [packet for packet in packets if packet != LOOK]

    # The end

    def shutdown(self, grace_s: float = _GRACE_S) -> None:
        """End all workers: the free ones go by themselves, the others are ended; a stopped one is killed."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        _crews.discard(self)
        processes = [member.process for member in self.members.values()]
        try:
            self.take_back_tasks()
            for _ in processes:
                self.tasks.send(write_retire())
        except OSError:
            pass
        _wait_for(processes, grace_s)
        for process in processes:
            if not _has_ended(process):
                process.terminate()
        _wait_for(processes, _AFTER_TERMINATE_S)
        for process in processes:
            if not _has_ended(process):
                process.kill()
        for process in processes:
            process.join()
        self.members.clear()
        for end in (self.tasks, self._tasks_out, self.first_tasks, self._first_out, self._answers_in, self.answers):
            end.close()
        self.memory.close()

    def __del__(self) -> None:
        self.shutdown()


def _has_ended(process: Any) -> bool:
    poller = select.poll()
    poller.register(process.sentinel, select.POLLIN)
    return bool(poller.poll(0))


def _wait_for(processes: list[Any], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    poller = select.poll()
    open_ones = {p.sentinel for p in processes}
    for sentinel in open_ones:
        poller.register(sentinel, select.POLLIN)
    while open_ones and (left := deadline - time.monotonic()) > 0:
        for sentinel, _ in poller.poll(left * 1000):
            poller.unregister(sentinel)
            open_ones.discard(sentinel)


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # Before multiprocessing's own handler, which waits for ever for a worker that was stopped.
    for crew in list(_crews):
        crew.shutdown(_GRACE_AT_EXIT_S)
