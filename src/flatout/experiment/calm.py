"""A machine that others disturb: a trial waits for it to be quiet again, for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatout.diagnose.machine import DISTURBED
from flatout.records.machine import MachineUse
from flatout.records.message import Message, message
from flatout.records.trial import Trial
from flatout.telemetry.host import HostSampler
from flatout.telemetry.scheduling import allowed_cores

# One wait. Whoever computes for longer than that is not waited for: trials take turns, which shows what they vary by.
_MOST_S = 6.0
# Of the time that a search has, what waits and trials that are made again may take in all.
_WAITS_SHARE, _AGAIN_SHARE = 0.05, 0.2
# A machine that was not quiet after so many waits stays as it is.
_MOST_IN_VAIN = 2
_LOOK_S = 0.5


def measure_other_cores(seconds: float = _LOOK_S) -> float | None:
    """Cores that were busy with something else than this process, and those that a virtual machine did not get."""
    cores, host = allowed_cores(os.getpid()), HostSampler()
    seen = []
    for pause_s in (seconds, 0.0):
        host.sample()
        counted_s = host.counted_s(cores)
        if counted_s is None:
            return None
        seen.append((time.perf_counter(), sum(counted_s) - time.process_time()))
        time.sleep(pause_s)
    (began_s, before_s), (ended_s, after_s) = seen
    return max(0.0, after_s - before_s) / (ended_s - began_s)


@dataclass(slots=True)
class CalmWaiter:
    """Waits until others leave a run the processors that it wants; gives up for good where they do not."""

    tell: Callable[[Message], None]
    # What the search has.
    budget_s: float = 600.0
    other_cores: Callable[[], float | None] = measure_other_cores
    clock: Callable[[], float] = time.monotonic
    _waited_s: float = 0.0
    _again_s: float = 0.0
    _in_vain: int = 0

    def wait_for(self, trial: Trial) -> bool:
        """Whether a trial that was disturbed can be made again: the machine is quiet, and there is time for it."""
        use, left_s = trial.machine, min(_MOST_S, _WAITS_SHARE * self.budget_s - self._waited_s)
        has_time = left_s >= _LOOK_S and self._again_s + trial.wall_s <= _AGAIN_SHARE * self.budget_s
        if use is None or not use.disturbed or not has_time or self._in_vain >= _MOST_IN_VAIN:
            return False
        is_quiet = self._wait(use, left_s)
        self._again_s += trial.wall_s if is_quiet else 0.0
        return is_quiet

    def _wait(self, use: MachineUse, left_s: float) -> bool:
        self.tell(message("machine.waiting", seconds=left_s, sentence=use.sentence))
        began_s = self.clock()
        is_quiet = False
        while not is_quiet and self.clock() - began_s < left_s:
            others = self.other_cores()
            if others is None:
                break
            is_quiet = others <= spare_cores(use)
        self._waited_s += self.clock() - began_s
        self._in_vain = 0 if is_quiet else self._in_vain + 1
        self.tell(message("machine.trial_again" if is_quiet else "machine.stays_busy"))
        return is_quiet


def spare_cores(use: MachineUse) -> float:
    """What others may have without taking anything from such a run."""
    wanted = use.cores if use.wanted_cores is None else min(use.cores, use.wanted_cores)
    return max(DISTURBED * use.cores, use.cores - wanted)


def describe_disturbed(trials: Sequence[Trial]) -> Message | None:
    """The worst of all trials, and how many there are; None where none was disturbed, or each was made again."""
    disturbed = [trial for trial in trials if trial.is_disturbed]
    again = sum(trial.made_again for trial in trials)
    if not disturbed:
        return message("machine.trials_again", again=again) if again else None
    worst = max(disturbed, key=lambda trial: trial.lost_share)
    assert worst.machine is not None
    facts = {"count": len(disturbed), "trials": len(trials), "again": again, "sentence": worst.machine.sentence}
    return message("machine.trials_disturbed", **facts)
