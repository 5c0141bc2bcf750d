"""What fixing something would gain, from this run's own figures: never a canned number.

A gain is the ratio of samples/s after the fix. `low` is what a cautious engineer would promise, `mid` what the figures
say, `high` what would be reached if nothing else got in the way.
"""

from __future__ import annotations

from flatout.records.evidence import Evidence
from flatout.records.report import Gain

# Of the time that a fix should remove, this much is promised.
_CAUTIOUS = 0.75


def by_removing(run: Evidence, removed_ms: float, method: str, floor_ms: float = 0.0) -> Gain | None:
    """The step is shorter by `removed_ms`, but never shorter than `floor_ms`, which then binds. None without steps."""
    step_ms = run.step_ms
    if step_ms <= 0 or removed_ms <= 0:
        return None
    floor_ms = min(step_ms, max(floor_ms, 1e-6))
    mid_ms = max(step_ms - removed_ms, floor_ms)
    low_ms = step_ms - _CAUTIOUS * (step_ms - mid_ms)
    return Gain(low=step_ms / low_ms, mid=step_ms / mid_ms, high=step_ms / mid_ms, method=method)


def by_step(run: Evidence, low_ms: float, mid_ms: float, high_ms: float, method: str) -> Gain | None:
    """The step takes so long after the fix: at worst, as the figures say, at best. None where it gains nothing."""
    step_ms = run.step_ms
    if step_ms <= 0 or mid_ms <= 0 or mid_ms >= step_ms:
        return None
    low_ms = min(step_ms, max(low_ms, mid_ms))
    return Gain(step_ms / low_ms, step_ms / mid_ms, step_ms / max(1e-6, min(high_ms, mid_ms)), method)


def without_waiting_ms(run: Evidence) -> float:
    """A step that never waits for a batch: the computing side alone, which then binds."""
    rest_ms = run.step_ms - run.phase("data").ms
    busy_ms = run.device_busy_ms
    # The host prepares the next step while the device computes: the slower of the two sets the pace.
    return max(rest_ms - _hidden_wait_ms(run), busy_ms) if busy_ms is not None else rest_ms


def _hidden_wait_ms(run: Evidence) -> float:
    """Host time of a step spent waiting for the device: it shrinks when the device is done sooner, never below it."""
    return run.phase("sync").ms if run.on_gpu else 0.0


def processors_floor_ms(run: Evidence) -> float:
    """No arrangement is quicker than all processors together doing the work that the run's processes did in a step."""
    host = run.report.host
    if host is None or host.cpu_cores is None:
        return 0.0
    return run.step_ms * min(1.0, host.cpu_cores / max(run.cpus, 1e-9))
