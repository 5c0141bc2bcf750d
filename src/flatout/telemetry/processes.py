"""The process tree of a training script: CPU, memory, faults and I/O of the main process and of each worker.

Reads /proc directly: psutil takes a millisecond a process here, which is too much five times a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from flatout.records.sample import ProcessSample, Role
from flatout.telemetry.procfile import ProcFile, Rate, list_folder, read_file

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# New processes are looked for this often.
_SCAN_S = 1.0
# PSS of a process is read this often, and sooner where its RSS, which costs nothing to read, has grown by this much:
# else the peak of a run of a few seconds would be what it held at its beginning.
_PSS_S = 5.0
_GROWN = 1.02
# The kernel walks the page tables for PSS, and holds the process's map lock meanwhile: no more than 0.5% of a core
# goes into it. What is left of that in quiet times is saved, so that a sudden growth can be followed.
_PSS_TIME_SHARE = 0.005
_PSS_MOST_SAVED_S = 0.05
# A process that has just been forked still bears its parent's command line until it calls exec: look again.
_COMMAND_READS = 4
_SPAWNED = b"multiprocessing.spawn"
_FORKSERVER = b"multiprocessing.forkserver"
_HELPERS = (b"multiprocessing.resource_tracker", b"torch._inductor", b"compile_worker")
_LAUNCHERS = (b"torchrun", b"torch.distributed.", b"accelerate", b"deepspeed", b"horovodrun", b"mpirun")


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that we use."""

    ppid: int
    major_faults: int
    cpu_s: float
    # Of children that have ended and were waited for, with all of theirs.
    children_s: float
    threads: int
    rss_bytes: int


def parse_stat(data: bytes) -> Stat | None:
    """Splits behind the last bracket: a process may have brackets and spaces in its name."""
    fields = data[data.rfind(b")") + 1 :].split()
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Stat(
        ppid=int(fields[1]),
        major_faults=int(fields[9]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        children_s=(int(fields[13]) + int(fields[14])) / _TICKS_PER_S,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
    )


class _Process:
    """One watched process and its kept files."""

    def __init__(self, folder: Path, pid: int, ppid: int) -> None:
        self.pid, self.ppid = pid, ppid
        self.folder = folder
        self.role: Role = "other"
        self.command = b""
        self.command_reads = 0
        # As of the last sample.
        self.cpu_s, self.children_s = 0.0, 0.0
        self.pss_bytes: float | None = None
        self.pss_read_s = float("-inf")
        self._rss_bytes = 0
        self._rss_bytes_at_pss = 0
        self._stat, self._io = ProcFile(folder / "stat"), ProcFile(folder / "io")
        self._cpu, self._faults, self._reads, self._writes = Rate(), Rate(), Rate(), Rate()

    def sample(self, now_s: float) -> ProcessSample | None:
        """None when the process is gone."""
        stat = parse_stat(self._stat.read() or b"")
        if stat is None:
            return None
        self._rss_bytes = stat.rss_bytes
        self.cpu_s, self.children_s = stat.cpu_s, stat.children_s
        io = _io_bytes(self._io.read())
        return ProcessSample(
            pid=self.pid,
            role=self.role,
            cpu_share=self._cpu.of(stat.cpu_s, now_s),
            rss_bytes=float(stat.rss_bytes),
            pss_bytes=self.pss_bytes,
            major_faults_per_s=self._faults.of(stat.major_faults, now_s),
            read_bytes_per_s=self._reads.of(io[0], now_s),
            write_bytes_per_s=self._writes.of(io[1], now_s),
            threads=float(stat.threads),
        )

    def wants_pss(self, now_s: float) -> bool:
        return now_s - self.pss_read_s >= _PSS_S or self._rss_bytes > _GROWN * self._rss_bytes_at_pss

    def read_pss(self, now_s: float) -> None:
        self.pss_read_s = now_s
        # As of the last sample: what has come since makes it wanted again.
        self._rss_bytes_at_pss = self._rss_bytes
        self.pss_bytes = _pss_bytes(read_file(self.folder / "smaps_rollup"))


class ProcessSampler:
    """Follows `root_pid` and everything it starts. A process once seen in the tree stays in it, even when orphaned."""

    def __init__(
        self, root_pid: int, proc: Path = Path("/proc"), clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._root_pid = root_pid
        self._proc = proc
        self._clock = clock
        self._tree: dict[int, _Process] = {}
        self._others: set[int] = set()
        self._scan_due_s = float("-inf")
        self._time = _TreeTime()
        self._pss_saved_s, self._pss_saved_at_s = 0.0, clock()

    @property
    def pids(self) -> frozenset[int]:
        """The tree's process ids as of the last sample; safe to ask from another thread."""
        return frozenset(tuple(self._tree))

    @property
    def roles(self) -> dict[int, Role]:
        """Who is who in the tree as of the last sample."""
        return {pid: process.role for pid, process in self._tree.items()}

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the whole tree since it was first sampled, also of those that have ended meanwhile."""
        return self._time.total_s

    def sample(self) -> tuple[ProcessSample, ...]:
        now_s = self._clock()
        if now_s >= self._scan_due_s:
            self._scan()
            self._scan_due_s = now_s + _SCAN_S
        if self._save_up_for_pss(now_s):
            self._read_one_pss(now_s)
        samples = []
        for pid, process in list(self._tree.items()):
            sample = process.sample(now_s)
            if sample is None:
                del self._tree[pid]  # which closes its files
                self._time.end(process)
            else:
                samples.append(sample)
        self._time.add(self._tree.values())
        return tuple(samples)

    def _scan(self) -> None:
        """Looks at process ids not seen before only: on a busy server there are thousands of old ones."""
        present = {int(name) for name in list_folder(self._proc) if name.isdigit()}
        self._others &= present
        new = present - self._others - self._tree.keys()
        stats = ((pid, parse_stat(read_file(self._proc / str(pid) / "stat") or b"")) for pid in new)
        parents = {pid: stat.ppid for pid, stat in stats if stat is not None}
        found = self._descendants(parents)
        self._others |= parents.keys() - found
        for pid in found:
            self._tree[pid] = _Process(self._proc / str(pid), pid, parents[pid])
        if any(process.command_reads < _COMMAND_READS for process in self._tree.values()):
            self._assign_roles()

    def _descendants(self, parents: dict[int, int]) -> set[int]:
        found = {self._root_pid} & parents.keys()
        known = self._tree.keys() | found
        while more := {pid for pid, ppid in parents.items() if ppid in known and pid not in known}:
            found |= more
            known |= more
        return found

    def _assign_roles(self) -> None:
        for process in self._tree.values():
            if process.command_reads < _COMMAND_READS:
                # Only the watched tree's command lines are looked at, and none is kept in a sample.
                process.command = read_file(process.folder / "cmdline") or b""
                process.command_reads += 1
        roles = roles_of({p.pid: Known(p.ppid, p.command) for p in self._tree.values()}, self._root_pid)
        for process in self._tree.values():
            process.role = roles[process.pid]

    def _save_up_for_pss(self, now_s: float) -> bool:
        saved_s = self._pss_saved_s + _PSS_TIME_SHARE * (now_s - self._pss_saved_at_s)
        self._pss_saved_s, self._pss_saved_at_s = min(saved_s, _PSS_MOST_SAVED_S), now_s
        return saved_s >= 0

    def _read_one_pss(self, now_s: float) -> None:
        """One process a turn, the one that has waited longest, so that a tick never pays for a whole tree."""
        due = [p for p in self._tree.values() if p.wants_pss(now_s)]
        if not due:
            return
        started_s = time.thread_time()
        min(due, key=lambda p: p.pss_read_s).read_pss(now_s)
        self._pss_saved_s -= time.thread_time() - started_s


class _TreeTime:
    """Adds up what a tree of processes takes, with those that begin and end between two samples.

    A child's time goes to its parent's account when the parent has waited for it. What was seen of it before that is
    counted already: only the rest of such an amount is new.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self._last: dict[int, tuple[float, float]] = {}
        # Of ended children that are not yet in the account of their parent, which is the key.
        self._counted_s: dict[int, float] = {}
        self._is_first = True

    def end(self, process: _Process) -> None:
        if process.pid in self._last:
            self._counted_s[process.ppid] = self._counted_s.get(process.ppid, 0.0) + sum(self._last.pop(process.pid))

    def add(self, processes: Iterable[_Process]) -> None:
        for process in processes:
            now = (process.cpu_s, process.children_s)
            # Whatever the first look finds was there before.
            last = self._last.get(process.pid, now if self._is_first else (0.0, 0.0))
            self._last[process.pid] = now
            self.total_s += max(0.0, now[0] - last[0]) + self._unseen_s(process.pid, now[1] - last[1])
        self._is_first = False

    def _unseen_s(self, parent: int, more_s: float) -> float:
        counted_s = min(more_s, self._counted_s.get(parent, 0.0))
        if counted_s > 0:
            self._counted_s[parent] -= counted_s
        return max(0.0, more_s - counted_s)


def _io_bytes(data: bytes | None) -> tuple[float | None, float | None]:
    """What the process caused to be read from and written to storage (not what it found in the page cache)."""
    values = dict(line.split(b": ", 1) for line in (data or b"").split(b"\n") if b": " in line)
    read, written = values.get(b"read_bytes"), values.get(b"write_bytes")
    return (None if read is None else float(read)), (None if written is None else float(written))


def _pss_bytes(rollup: bytes | None) -> float | None:
    _, found, after = (rollup or b"").partition(b"\nPss:")
    return float(after.split(None, 1)[0]) * 1024 if found else None


# Who is who in a process tree, judged by command lines: the trainers, their loader workers, and the rest.


class Known(NamedTuple):
    """A process as the judgement sees it. `command` is /proc/<pid>/cmdline as it stands."""

    ppid: int
    command: bytes


def roles_of(tree: Mapping[int, Known], root_pid: int) -> dict[int, Role]:
    """A forked worker bears its parent's command line, a spawned one names multiprocessing; a rank has a launcher."""
    workers = {pid for pid in tree if _is_worker(tree, pid)}
    # A spawned process with workers of its own is a rank (torch.multiprocessing.spawn), not a worker.
    ranks = {tree[pid].ppid for pid in workers} & {pid for pid in workers if _SPAWNED in tree[pid].command}
    mains = ranks | {pid for pid in tree if pid not in workers and _is_trainer(tree, pid)}
    if not mains and root_pid in tree:
        mains = {root_pid}
    return {pid: "main" if pid in mains else "worker" if pid in workers else "other" for pid in tree}


def _is_worker(tree: Mapping[int, Known], pid: int) -> bool:
    process, parent = tree[pid], tree.get(tree[pid].ppid)
    if parent is None or not process.command or any(name in process.command for name in _HELPERS):
        return False
    return _SPAWNED in process.command or (process.command == parent.command and _is_python(process.command))


def _is_trainer(tree: Mapping[int, Known], pid: int) -> bool:
    """A Python process of its own with nothing but shells and launchers above it."""
    command = tree[pid].command
    if not _is_python(command) or _is_launcher(command) or _FORKSERVER in command:
        return False
    above = tree.get(tree[pid].ppid)
    while above is not None:
        if _is_python(above.command) and not _is_launcher(above.command):
            return False
        above = tree.get(above.ppid)
    return True


def _is_python(command: bytes) -> bool:
    return b"python" in command.split(b"\0", 1)[0].rsplit(b"/", 1)[-1]


def _is_launcher(command: bytes) -> bool:
    # Only what is run counts: `train.py --backend accelerate` is a trainer.
    return any(name in part for part in command.split(b"\0")[:4] for name in _LAUNCHERS)
