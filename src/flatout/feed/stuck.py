"""Names a worker that does not get on: a lock taken over by fork, a network that does not answer."""

from __future__ import annotations

from pathlib import Path

from .crew import Crew
from .schedule import Schedule

_LOCKED = (
    "it waits for a lock and computes nothing: perhaps one that a thread held when the worker was forked, as OpenMP's "
    "and OpenCV's do (cv2.setNumThreads(0), or multiprocessing_context='forkserver')"
)
_WAITING = "it waits and computes nothing: a file system or network that does not answer?"
_WORKING = "it is computing"
_STOPPED = "it was stopped by a signal"


def describe(crew: Crew, schedule: Schedule, waited_s: float) -> str:
    """One sentence per worker that is in the middle of something."""
    told = []
    for member in crew.members.values():
        work = schedule.work_of(member.seat)
        if work is not None:
            samples = ", ".join(map(repr, work.indices))
            pid = member.process.pid
            told.append(f"worker {member.worker} (pid {pid}) is loading sample {samples}: {_doing(pid)}")
    return f"DataLoader has waited {waited_s:.0f} s for a batch; " + ("; ".join(told) or "no worker has taken a sample")


def _doing(pid: int, proc: Path = Path("/proc")) -> str:
    try:
        state = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return _STOPPED
        if state == "R":
            return _WORKING
        return _LOCKED if "futex" in (proc / str(pid) / "wchan").read_text() else _WAITING
    except OSError:
        return _WAITING
