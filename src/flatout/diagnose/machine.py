"""Who had the processors while the run was training, and whether others disturbed it.

The kernel counts for each thread how long it was ready to run but did not, not why. The cause is told from who had
the processors meanwhile. Others can have kept threads of the run waiting for no longer than they ran themselves on the
processors that the run may use, nor for more than the run still had to get. What is left the run did to itself: its
threads and workers outnumber its processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from flatout.diagnose.ranks import Floats, Rank, during_steps, reduce_known
from flatout.records.machine import MachineUse, Neighbour, NotRunning
from flatout.records.message import Message, message
from flatout.records.report import Finding, Gain
from flatout.records.sample import ROLES, Role
from flatout.store.rows import Rows
from flatout.store.run import StoredRun

# Lost to others from which on it is said: below it, a cause is not worth fixing either.
DISTURBED = 0.05
# The kernel counts a processor's time in hundredths of a second: windows of a second are known to some percent.
_WINDOW_S = 0.9
# A thread of the training process that runs less than this share of the time computes nothing that is waited for.
_WORKS = 0.05
_MOST_NEIGHBOURS = 3
_LEAST_CORES = 0.05
# Where the kernel does not count threads: processors that were full, tasks that waited, and others' part of them.
_FULL, _PRESSED, _TAKEN = 0.95, 0.10, 0.10


def machine_use(run: StoredRun, ranks: Sequence[Rank]) -> MachineUse | None:
    """None where nobody looked at the processors, or training was not steady for long enough."""
    counted = _Counted.of(run, ranks)
    use = _by_threads(run, ranks, counted) if counted is not None else _by_machine(run, ranks)
    if use is None:
        return None
    pressure = _mean_while_steady(run, ranks, "host", "cpu_pressure_percent")
    use = replace(
        use,
        pressure_share=None if pressure is None else pressure / 100,
        cgroup_pressure_share=None if counted is None else _mean(counted.rates("cpu_pressure_s", "cgroup"), counted),
        gpu_processes=_mean_while_steady(run, ranks, "gpu", "other_processes"),
    )
    disturbed = use.lost_share >= DISTURBED if use.training is not None else _is_pressed(use)
    return replace(use, disturbed=disturbed, sentence=_sentence(use, disturbed))


def run_delay_ms(run: StoredRun, ranks: Sequence[Rank]) -> float | None:
    """Milliseconds a step in which the training thread was ready to run but did not; a mean over ranks."""
    counted = _Counted.of(run, ranks)
    return None if counted is None else _delay_ms(ranks, counted)


def thread_shares(run: StoredRun, ranks: Sequence[Rank]) -> dict[tuple[int, int], tuple[float, float]]:
    """By process and thread: the share of the steady time on a processor, and ready to run but without one."""
    counted = _Counted.of(run, ranks)
    if counted is None:
        return {}
    total_s = counted.total_s
    return {
        key: (float(thread.run_s.sum()) / total_s, float(thread.delay_s.sum()) / total_s)
        for key, thread in counted.threads.items()
    }


def other_processes_share(run: StoredRun, ranks: Sequence[Rank]) -> float:
    """The share of the steady time in which the busiest of the script's other processes is on a processor."""
    others = _pids(run, "other")
    return max((ran for (pid, _), (ran, _) in thread_shares(run, ranks).items() if pid in others), default=0.0)


def _delay_ms(ranks: Sequence[Rank], counted: _Counted) -> float | None:
    found = []
    for rank in ranks:
        thread = counted.threads.get(training_thread(rank))
        if thread is not None and rank.steady.step_ms is not None:
            found.append(thread.delay_s.sum() / counted.total_s * rank.steady.step_ms)
    return float(np.mean(found)) if found else None


def training_thread(rank: Rank) -> tuple[int, int]:
    """The process and the thread that trains."""
    pid = int(rank.recording.facts.get("pid") or 0)
    told = [value["tid"] for value in rank.recording.values("thread") if isinstance(value, dict) and "tid" in value]
    return pid, int(told[-1]) if told else pid


# What was counted, in windows of about a second of the steady part.


@dataclass(frozen=True)
class _ThreadTime:
    """Seconds in each window: on a processor, and ready to run but without one."""

    run_s: Floats
    delay_s: Floats


@dataclass(frozen=True)
class _Counted:
    run: StoredRun
    shared: Rows
    # Where windows begin and end, in seconds.
    edges: Floats

    @classmethod
    def of(cls, run: StoredRun, ranks: Sequence[Rank]) -> _Counted | None:
        shared, threads = run.rows("shared"), run.rows("threads")
        if shared is None or threads is None or not ranks:
            return None
        moments = during_steps(shared, ranks, or_all=False).column("t_s")
        edges = _spaced(moments)
        return cls(run, shared, edges) if len(edges) > 1 else None

    @cached_property
    def seconds(self) -> Floats:
        return np.diff(self.edges)

    @property
    def total_s(self) -> float:
        return float(self.edges[-1] - self.edges[0])

    @cached_property
    def threads(self) -> dict[tuple[int, int], _ThreadTime]:
        rows = self.run.rows("threads")
        assert rows is not None
        t_s, pid, tid, run_s, delay_s = _whole(rows, ("t_s", "pid", "tid", "run_s", "delay_s"))
        found = {}
        order = np.lexsort((t_s, tid, pid))
        starts = np.flatnonzero((np.diff(pid[order], prepend=-1) != 0) | (np.diff(tid[order], prepend=-1) != 0))
        for part in np.split(order, starts[1:]) if len(order) else ():
            of_thread = _ThreadTime(*(self._in_windows(t_s[part], values[part]) for values in (run_s, delay_s)))
            found[int(pid[part[0]]), int(tid[part[0]])] = of_thread
        return found

    @cached_property
    def delayed(self) -> Floats:
        """Threads that were ready to run but did not, on average in each window."""
        waited_s = sum((thread.delay_s for thread in self.threads.values()), np.zeros(len(self.seconds)))
        return waited_s / self.seconds

    def rates(self, name: str, source: str = "shared") -> Floats | None:
        """Of a counter, by default one of the shared processors: seconds a second in each window."""
        rows = self.run.rows(source)
        if rows is None:
            return None
        values = rows.column(name)
        known = np.isfinite(values)
        if known.sum() < 2:
            return None
        return self._in_windows(rows.column("t_s")[known], values[known]) / self.seconds

    def _in_windows(self, t_s: Floats, counter: Floats) -> Floats:
        """By how much a counter grew in each window. Before its first sample and after its last it is not known to."""
        return np.maximum(np.diff(np.interp(self.edges, t_s, counter)), 0.0)


def _whole(rows: Rows, names: Sequence[str]) -> tuple[Floats, ...]:
    """These columns, of the rows that have a value in each."""
    columns = [rows.column(name) for name in names]
    known = np.isfinite(columns).all(axis=0)
    return tuple(column[known] for column in columns)


def _spaced(moments: Floats) -> Floats:
    """Moments of sampling that are far enough apart; the last is always one."""
    kept: list[float] = []
    for moment in moments.tolist():
        if not kept or moment - kept[-1] >= _WINDOW_S:
            kept.append(moment)
    if kept and moments[-1] > kept[-1]:
        # The rest goes to the last window, unless there is only one moment yet.
        kept[len(kept) - 1 if len(kept) > 1 else 1 :] = [float(moments[-1])]
    return np.asarray(kept)


# The causes.


def _by_threads(run: StoredRun, ranks: Sequence[Rank], counted: _Counted) -> MachineUse | None:
    own, busy = counted.rates("own_s"), counted.rates("busy_s")
    cores = float(reduce_known(counted.shared.column("cores"), np.median) or 1.0)
    quota = run.manifest.environment.get("cpu_quota_cores")
    cores = min(cores, float(quota)) if isinstance(quota, int | float) and quota > 0 else cores
    others = None if own is None or busy is None else np.maximum(busy - own, 0.0)
    causes = _causes(counted, cores, own, others)
    training = {training_thread(rank) for rank in ranks}
    pids = {pid for pid, _ in training}
    of_training = [thread for key, thread in counted.threads.items() if key in training]
    helpers = [
        thread
        for key, thread in counted.threads.items()
        if key[0] in pids and key not in training and thread.run_s.sum() >= _WORKS * counted.total_s
    ]
    workers = _worker_threads(run, counted)
    return MachineUse(
        cores=cores,
        own_cores=_mean(own, counted),
        other_cores=_mean(others, counted),
        wanted_cores=None if own is None else _mean(own + counted.delayed, counted),
        training=_not_running(of_training, counted, causes),
        helpers=max(
            (_not_running([thread], counted, causes) for thread in helpers),
            key=lambda part: part.share if part is not None else 0.0,
            default=None,
        ),
        workers=_not_running(workers, counted, causes),
        delay_ms=_delay_ms(ranks, counted),
        neighbours=_neighbours(run, counted),
    )


@dataclass(frozen=True)
class _Causes:
    """Of all waiting in each window, the part that each cause has (0..1); of all running, the part that was stolen."""

    others: Floats | None
    quota: Floats
    stolen: Floats | None


def _causes(counted: _Counted, cores: float, own: Floats | None, others: Floats | None) -> _Causes:
    delayed = counted.delayed
    throttled = counted.rates("throttled_s", "cgroup")
    by_quota = np.zeros(len(delayed)) if throttled is None else np.minimum(delayed, throttled)
    some = np.maximum(delayed, 1e-9)
    steal, busy = counted.rates("steal_s"), counted.rates("busy_s")
    stolen = None if steal is None or busy is None else steal / np.maximum(steal + busy, 1e-9)
    if own is None or others is None:
        return _Causes(None, by_quota / some, stolen)
    # Whoever has all that it may have is kept waiting by its own threads.
    missing = np.maximum(cores - own, 0.0)
    by_others = np.minimum(np.minimum(delayed - by_quota, others), missing)
    return _Causes(by_others / some, by_quota / some, stolen)


def _not_running(threads: Sequence[_ThreadTime], counted: _Counted, causes: _Causes) -> NotRunning | None:
    """The mean of these threads."""
    if not threads:
        return None
    delay_s = np.mean([thread.delay_s for thread in threads], axis=0)
    run_s = np.mean([thread.run_s for thread in threads], axis=0)

    def share(seconds: Floats) -> float:
        return float(seconds.sum() / counted.total_s)

    by_quota = share(delay_s * causes.quota)
    by_others = None if causes.others is None else share(delay_s * causes.others)
    return NotRunning(
        share=share(delay_s),
        by_own=None if by_others is None else max(0.0, share(delay_s) - by_others - by_quota),
        by_others=by_others,
        by_quota=by_quota,
        by_steal=None if causes.stolen is None else share(run_s * causes.stolen),
    )


def _worker_threads(run: StoredRun, counted: _Counted) -> list[_ThreadTime]:
    pids = _pids(run, "worker")
    return [
        thread
        for (pid, tid), thread in counted.threads.items()
        if pid in pids and tid == pid and (thread.run_s.sum() > 0 or thread.delay_s.sum() > 0)
    ]


def _pids(run: StoredRun, role: Role) -> set[int]:
    rows = run.rows("processes")
    if rows is None:
        return set()
    return {int(pid) for pid in rows.column("pid")[rows.column("role") == ROLES.index(role)].tolist()}


def _neighbours(run: StoredRun, counted: _Counted) -> tuple[Neighbour, ...]:
    rows = run.rows("neighbours")
    if rows is None:
        return ()
    names = cast("dict[str, str]", run.manifest.environment.get("neighbours") or {})
    t_s, pids, cores, span_s = _whole(rows, ("t_s", "pid", "cores", "span_s"))
    # A look tells of the time before it: so much of that was in the steady part.
    inside_s = np.minimum(t_s, counted.edges[-1]) - np.maximum(t_s - span_s, counted.edges[0])
    cores_s = cores * np.maximum(inside_s, 0.0)
    total: dict[int, float] = {}
    for pid, seconds in zip(pids.tolist(), cores_s.tolist(), strict=True):
        total[int(pid)] = total.get(int(pid), 0.0) + seconds / counted.total_s
    busiest = sorted(total.items(), key=lambda item: -item[1])[:_MOST_NEIGHBOURS]
    return tuple(Neighbour(pid, names.get(str(pid)), mean) for pid, mean in busiest if mean >= _LEAST_CORES)


def _mean(rates: Floats | None, counted: _Counted) -> float | None:
    return None if rates is None else float((rates * counted.seconds).sum() / counted.total_s)


def _mean_while_steady(run: StoredRun, ranks: Sequence[Rank], source: str, column: str) -> float | None:
    rows = run.rows(source)
    return None if rows is None else reduce_known(during_steps(rows, ranks, or_all=False).column(column))


# Where the kernel does not count threads, as in recordings made before it was asked to.


def _by_machine(run: StoredRun, ranks: Sequence[Rank]) -> MachineUse | None:
    """Who had the processors is known, but not for how long threads waited."""
    processes, environment = run.rows("processes"), run.manifest.environment
    cores, allowed = environment.get("cpus"), environment.get("cpus_allowed")
    if processes is None or not isinstance(cores, int | float) or allowed != cores:
        return None
    busy = _mean_while_steady(run, ranks, "host", "cpu_share")
    steady = during_steps(processes, ranks, or_all=False)
    cpu = np.nan_to_num(steady.column("cpu_share"))
    moments = len(np.unique(steady.column("t_s")))
    if busy is None or not moments:
        return None
    own = float(cpu.sum()) / moments
    return MachineUse(float(cores), own, max(0.0, busy * cores - own))


# The judgement.

# A step never gets shorter than this part of itself, however the lost time is shared out.
_LEAST_REST = 0.05
# Others delay all lines of a thread about alike: no part of a step loses more than so many times its share.
_MOST_OF_A_PART = 2.0
# Other processes on the GPU, as a mean: there for half of the time.
_SHARED_GPU = 0.5


def widen_gains(found: Sequence[Finding], use: MachineUse | None) -> tuple[Finding, ...]:
    """Predicted gains of a disturbed run. Where in the step the lost time was is not known: more of it may be in what a
    change would save, which makes the gain smaller, or in what it would leave, which makes it larger.
    """
    if use is None or not use.disturbed or not use.lost_share:
        return tuple(found)
    return tuple(
        finding
        if finding.predicted_gain is None
        else replace(finding, predicted_gain=_widen(finding.predicted_gain, min(use.lost_share, 1 - _LEAST_REST)))
        for finding in found
    )


def machine_notices(use: MachineUse | None) -> Iterator[Message]:
    """What the reader of the figures has to know."""
    if use is None:
        return
    if use.disturbed:
        yield message("machine.consequence")
    if use.gpu_processes is not None and use.gpu_processes >= _SHARED_GPU:
        yield message("machine.gpu_shared", count=max(1, round(use.gpu_processes)))


def _widen(gain: Gain, lost: float) -> Gain:
    rest_low, rest_high = 1 / max(gain.low, 1.0), 1 / max(gain.high, 1.0)
    in_saved, in_rest = (min(lost, _MOST_OF_A_PART * lost * part) for part in (1.0 - rest_low, rest_high))
    low, high = (
        (1.0 - lost) / max(rest - lost_of_it, _LEAST_REST * rest)
        for rest, lost_of_it in ((rest_low, lost - in_saved), (rest_high, in_rest))
    )
    return replace(gain, low=max(1.0, min(gain.low, low)), high=max(gain.high, high))


def _is_pressed(use: MachineUse) -> bool:
    """Whether others had a good part of processors that were full, while tasks waited for one."""
    other, own, pressure = use.other_cores, use.own_cores, use.pressure_share
    if other is None or own is None or pressure is None:
        return False
    return other + own >= _FULL * use.cores and other >= _TAKEN * use.cores and pressure >= _PRESSED


def _sentence(use: MachineUse, disturbed: bool) -> Message | None:
    if not disturbed:
        return _on_quota(use)
    cores = {"cores": use.cores, "other": use.other_cores or 0.0}
    who, part = _most_delayed(use)
    if part is None:
        return message("machine.others_unmeasured", names=_names(use), own=use.own_cores, **cores)
    steal = part.by_steal or 0.0
    if steal > (part.by_others or 0.0):
        return message("machine.steal", who=who, share=steal)
    return message("machine.others", names=_names(use), who=who, share=part.by_others, **cores)


def _on_quota(use: MachineUse) -> Message | None:
    part = use.training
    if part is None or (part.by_quota or 0.0) < DISTURBED:
        return None
    return message("machine.quota", who=message("machine.training"), share=part.by_quota, cores=use.cores)


def _most_delayed(use: MachineUse) -> tuple[Message, NotRunning | None]:
    training = message("machine.training")
    parts = (
        (training, use.training),
        (message("machine.helpers"), use.helpers),
        (message("machine.workers"), use.workers),
    )
    known = [(who, part) for who, part in parts if part is not None]
    # The training thread is named where it waits as long as any.
    return max(known, key=lambda item: round(item[1].by_foreign, 2)) if known else (training, None)


def _names(use: MachineUse) -> Message:
    known = tuple(
        message("machine.neighbour", name=neighbour.name, pid=neighbour.pid, cores=neighbour.cores)
        for neighbour in use.neighbours
        if neighbour.name is not None
    )
    return message("machine.named", names=known) if known else message("machine.unnamed")
