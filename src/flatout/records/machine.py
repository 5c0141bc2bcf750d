"""The processors of a run: how long its threads were ready to run but did not, and who had the processors then.

Shares are 0..1 of the steady part. `None` is "not measured".
"""

from __future__ import annotations

from dataclasses import dataclass

from flatout.records.message import Message


@dataclass(frozen=True, slots=True)
class NotRunning:
    """Time in which a thread could have run but did not, by what kept it. The causes are None where they are not known.

    `by_own`: other threads and processes of the run itself, which outnumber its processors. `by_quota`: the limit of
    its container. `by_steal`: other virtual machines; that time the kernel takes for running, so it is not in `share`.
    """

    share: float
    by_own: float | None = None
    by_others: float | None = None
    by_quota: float | None = None
    by_steal: float | None = None

    @property
    def by_foreign(self) -> float:
        """What others than the run are to blame for, as far as that is known."""
        return (self.by_others or 0.0) + (self.by_steal or 0.0)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process outside of the run: cores it had, as a mean over the steady part. No name where it was not kept."""

    pid: int
    name: str | None
    cores: float


@dataclass(frozen=True, slots=True)
class MachineUse:
    """Who had the processors that the run may use, while training was steady."""

    # By affinity and quota.
    cores: float
    own_cores: float | None = None
    other_cores: float | None = None
    # What it had and what its threads were ready to use: more than there are where it has too many of them.
    wanted_cores: float | None = None
    # Of the training thread; of the busiest waiting one of its process's other threads; of a loader worker on average.
    training: NotRunning | None = None
    helpers: NotRunning | None = None
    workers: NotRunning | None = None
    # Milliseconds a step in which the training thread was ready to run but did not.
    delay_ms: float | None = None
    # The busiest first.
    neighbours: tuple[Neighbour, ...] = ()
    # PSI of the machine, and of the run's own cgroup: time in which some task had to wait for a processor.
    pressure_share: float | None = None
    cgroup_pressure_share: float | None = None
    # Processes of others that held memory on a GPU of the run, on average.
    gpu_processes: float | None = None
    # Whether others took so much that rates and gains of this run cannot be relied on.
    disturbed: bool = False
    # Who and how much; None where there is nothing to say.
    sentence: Message | None = None

    @property
    def lost_share(self) -> float:
        """The largest share that others took of the time of any part of the run."""
        parts = (self.training, self.helpers, self.workers)
        return max((part.by_foreign for part in parts if part is not None), default=0.0)
