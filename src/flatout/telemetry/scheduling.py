"""Who had the processors: how long threads of the run were ready to run but did not, and which processes ran instead.

The kernel counts the first for every thread (`schedstat`), but not who kept it waiting. So other processes are looked
at while threads of the run do wait, and seldom.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from flatout.records.sample import NeighbourSample, Role, ThreadSample
from flatout.telemetry.procfile import ProcFile, list_folder

# New threads are looked for this often.
_LIST_S = 1.0
# Threads of one training process that are read, and of these others than its first that are filed at each sample: the
# ones that ran most. A pool of compute threads waits as a whole, so some of it stand for all.
_MOST_READ, _MOST_FILED = 64, 8
# A thread that ran and waited for less than this share of the time has nothing to tell: it is read with the next list.
_LEAST_ACTIVE = 0.01


def allowed_cores(pid: int) -> frozenset[int]:
    """The processors that a process may run on; empty where that is not known."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


class _Use(NamedTuple):
    """A reading, and what changed since the one before it: seconds ready but not running, and these with running."""

    sample: ThreadSample
    waited_s: float
    active_s: float
    span_s: float


class _Thread:
    def __init__(self, folder: Path, pid: int, tid: int) -> None:
        self.pid, self.tid = pid, tid
        self.is_idle = False
        self._file = ProcFile(folder / "schedstat")
        self._last: ThreadSample | None = None
        self._last_s = 0.0

    def read(self, now_s: float) -> _Use | None:
        """None when it is gone, or where the kernel does not count."""
        fields = (self._file.read_line() or b"").split()
        if len(fields) < 2 or fields[0] == fields[1] == b"0":
            return None
        sample = ThreadSample(self.pid, self.tid, int(fields[0]) * 1e-9, int(fields[1]) * 1e-9)
        last, self._last = self._last or sample, sample
        last_s, self._last_s = self._last_s, now_s
        waited_s = max(0.0, sample.delay_s - last.delay_s)
        return _Use(
            sample, waited_s, waited_s + sample.run_s - last.run_s, now_s - last_s if last is not sample else 0.0
        )


class ThreadSampler:
    """The first thread of every process of the tree, and those of a training process that run at all."""

    def __init__(
        self,
        roles: Callable[[], Mapping[int, Role]],
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._roles = roles
        self._proc = proc
        self._clock = clock
        self._threads: dict[int, dict[int, _Thread]] = {}
        self._list_due_s = float("-inf")
        self._last_s: float | None = None
        # Thread seconds a second that were spent ready to run but not running, between the last two samples.
        self.delay_share: float | None = None

    def sample(self) -> tuple[ThreadSample, ...]:
        now_s, roles = self._clock(), self._roles()
        self._threads = {pid: threads for pid, threads in self._threads.items() if pid in roles}
        is_listed = now_s >= self._list_due_s
        if is_listed:
            self._list_due_s = now_s + _LIST_S
        samples: list[ThreadSample] = []
        delay_s = 0.0
        for pid, role in roles.items():
            threads = self._threads.setdefault(pid, {})
            if pid not in threads or (is_listed and role == "main"):
                self._list(pid, role, threads)
            filed, waited_s = self._read(threads, now_s, is_listed)
            samples += filed
            delay_s += waited_s
        last_s, self._last_s = self._last_s, now_s
        if last_s is not None and now_s > last_s:
            self.delay_share = delay_s / (now_s - last_s)
        return tuple(samples)

    def _list(self, pid: int, role: Role, threads: dict[int, _Thread]) -> None:
        tasks = self._proc / str(pid) / "task"
        found = [pid] if role != "main" else sorted(int(name) for name in list_folder(tasks) if name.isdigit())
        for tid in found[:_MOST_READ]:
            if tid not in threads:
                threads[tid] = _Thread(tasks / str(tid), pid, tid)

    def _read(self, threads: dict[int, _Thread], now_s: float, is_listed: bool) -> tuple[list[ThreadSample], float]:
        """What to file of a process, and for how long its threads have waited since the last sample."""
        first: list[ThreadSample] = []
        others: list[tuple[float, ThreadSample]] = []
        delay_s = 0.0
        for tid, thread in list(threads.items()):
            # Most threads of a process sleep all the time.
            if thread.is_idle and not is_listed:
                continue
            use = thread.read(now_s)
            if use is None:
                if tid != thread.pid:
                    del threads[tid]
                continue
            delay_s += use.waited_s
            thread.is_idle = tid != thread.pid and use.active_s < _LEAST_ACTIVE * use.span_s
            if tid == thread.pid:
                first.append(use.sample)
            elif not thread.is_idle:
                others.append((use.active_s, use.sample))
        others.sort(key=lambda active: -active[0])
        return first + [sample for _, sample in others[:_MOST_FILED]], delay_s


# Processes of others.

# Looked at no more often than this, and no more of a core than this share goes into it.
_EVERY_S = 2.0
_TIME_SHARE = 0.005
# Thread seconds a second that threads of the run wait, from which it is worth a look who runs.
_NOTICEABLE = 0.02
_MOST_PIDS = 4000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LINE_BYTES = 1024
# The busiest so many are filed, if they took so much of a core; so many names are kept in all.
_MOST_NAMED, _LEAST_CORES, _MOST_NAMES = 16, 0.02, 50


class _Seen(NamedTuple):
    """`began` tells processes apart that had the same number one after the other."""

    cpu_s: float
    began: bytes
    command: bytes

    @property
    def name(self) -> str:
        """A process chooses its own, and this one will be shown on a terminal."""
        signs = self.command.decode(errors="replace")
        return "".join(sign if sign.isprintable() else "?" for sign in signs)


def _parse_neighbour(data: bytes) -> _Seen | None:
    """From /proc/<pid>/stat: nothing else of other people's processes is read."""
    behind = data.rfind(b")")
    fields = data[behind + 1 :].split(None, 21)
    if len(fields) < 21:
        return None
    return _Seen((int(fields[11]) + int(fields[12])) / _TICKS_PER_S, fields[19], data[data.find(b"(") + 1 : behind])


class NeighbourSampler:
    """Processor time of all processes that are not of the tree, since the last look. Only names of commands are kept.

    The first look files nothing: it is what the next is compared with.
    """

    def __init__(
        self,
        own_pids: Callable[[], Set[int]],
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.perf_counter,
        allowed: Callable[[int], Set[int]] = allowed_cores,
    ) -> None:
        self.names: dict[int, str] = {}
        # Those that the run may use: a process that may not run there takes nothing from it.
        self.cores: Set[int] = frozenset()
        self._own_pids = own_pids
        self._proc = proc
        self._clock = clock
        self._allowed = allowed
        self._seen: dict[int, _Seen] = {}
        self._seen_s: float | None = None
        self._due_s = float("-inf")

    def is_due(self, delay_share: float | None) -> bool:
        if self._seen_s is None:
            return True
        return delay_share is not None and delay_share >= _NOTICEABLE and self._clock() >= self._due_s

    def sample(self) -> tuple[NeighbourSample, ...]:
        now_s, cpu_s = self._clock(), time.thread_time()
        before, before_s = self._seen, self._seen_s
        self._seen, self._seen_s = self._look(), now_s
        took_s = time.thread_time() - cpu_s
        self._due_s = now_s + max(_EVERY_S, took_s / _TIME_SHARE)
        if before_s is None or now_s <= before_s:
            return ()
        span_s = now_s - before_s
        ran = sorted((seen.cpu_s - _before(before.get(pid), seen), pid) for pid, seen in self._seen.items())
        cores = {pid: self._near(pid) * run_s / span_s for run_s, pid in ran[-_MOST_NAMED:]}
        busiest = sorted((pid for pid in cores if cores[pid] >= _LEAST_CORES), key=lambda pid: -cores[pid])
        for pid in busiest:
            if len(self.names) < _MOST_NAMES:
                self.names[pid] = self._seen[pid].name
        return tuple(NeighbourSample(pid, cores[pid], span_s) for pid in busiest)

    def _near(self, pid: int) -> float:
        """The part of a process's time that is taken from the run: it runs on any of its processors as likely."""
        theirs = self._allowed(pid)
        return len(theirs & self.cores) / len(theirs) if self.cores and theirs else 1.0

    def _look(self) -> dict[int, _Seen]:
        ours = self._own_pids() | {os.getpid()}
        pids = [int(name) for name in list_folder(self._proc) if name.isdigit()]
        root, found = str(self._proc), {}
        for pid in pids[:_MOST_PIDS]:
            if pid not in ours:
                seen = _parse_neighbour(_read_line(f"{root}/{pid}/stat"))
                if seen is not None:
                    found[pid] = seen
        return found


def _read_line(path: str) -> bytes:
    """There may be thousands: without what a file object costs. Empty where it is gone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _LINE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(file)


def _before(last: _Seen | None, now: _Seen) -> float:
    """What a process had taken at the last look; a number that was given to another process begins anew."""
    return last.cpu_s if last is not None and last.began == now.began else 0.0
