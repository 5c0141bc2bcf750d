"""What fixing something would gain, from this run's own figures, never a constant.

A gain is the ratio of samples/s after the fix. `low` is what a cautious engineer would promise, `mid` what the figures
say, `high` what would be reached if nothing else got in the way.
"""

from __future__ import annotations

from flatout.records.evidence import Evidence
from flatout.records.message import Message
from flatout.records.report import Gain

# What takes less than this share of the step is not worth a finding.
WORTH = 0.03
# Of the time that a fix should remove, the cautious estimate promises this much.
_CAUTIOUS = 0.75
# The device is now and then found empty in the best of runs; below this it is never short of work.
_NEVER_DRAINED = 0.02
_NOTICED = 1.005


def by_removing(run: Evidence, removed_ms: float, method: Message, floor_ms: float = 0.0) -> Gain | None:
    """The step is shorter by `removed_ms`, but never shorter than `floor_ms`, which then binds. None without steps."""
    step_ms = run.step_ms
    if step_ms <= 0 or removed_ms <= 0:
        return None
    floor_ms = min(step_ms, max(floor_ms, 1e-6))
    mid_ms = max(step_ms - removed_ms, floor_ms)
    low_ms = step_ms - _CAUTIOUS * (step_ms - mid_ms)
    return Gain(low=step_ms / low_ms, mid=step_ms / mid_ms, high=step_ms / mid_ms, method=method)


def by_step(run: Evidence, low_ms: float, mid_ms: float, high_ms: float, method: Message) -> Gain | None:
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
    if busy_ms is None:
        return rest_ms
    # The host prepares the next step while the device computes: the slower of the two sets the pace. What it waits for
    # the device shrinks when that is done sooner.
    return max(rest_ms - (run.phase("sync").ms if run.on_gpu else 0.0), busy_ms)


def processors_floor_ms(run: Evidence, spared_ms: float = 0.0) -> float:
    """No step is shorter than all CPUs together need for the work that the run's processes did in a step.

    `spared_ms` of that work, in CPU time, is no longer done.
    """
    host = run.report.host
    if host is None or host.cpu_cores is None:
        return 0.0
    work_ms = max(0.0, run.step_ms * host.cpu_cores - spared_ms)
    return min(run.step_ms, work_ms / max(run.cpus, 1e-9))


def device_work_ms(run: Evidence) -> float | None:
    """Milliseconds a step in which the GPU computes: sparing the host makes no step shorter than that.

    0 without a GPU, None where it was not measured. The device's timeline alone does not tell: it has the gaps between
    kernels in it. Utilisation ("some kernel ran") leaves them out.
    """
    gpu, busy_ms = run.report.gpu, run.device_busy_ms
    if not run.on_gpu:
        return 0.0
    if gpu is None:
        return None
    if gpu.busy_share is not None:
        return min(1.0, gpu.busy_share) * run.step_ms
    if gpu.drained_share is not None and gpu.drained_share < _NEVER_DRAINED:
        return run.step_ms
    if gpu.util_mean is not None:
        return min(1.0, gpu.util_mean / 100) * run.step_ms
    if busy_ms is None or gpu.drained_share is None:
        return None
    return busy_ms * (1 - gpu.drained_share)


def feed_ms(run: Evidence) -> float:
    """What the loader's workers need for the samples of a step: a host that waits for nothing else waits for them.

    A loader that finds its number of workers itself takes more of them when they are wanted sooner.
    """
    use = run.training_loader
    if use is None or not use.workers or use.cost is None:
        return 0.0
    if any(
        remedy.id == "loader.workers" and remedy.value == "auto" and remedy.state == "applied"
        for remedy in run.report.remedies
    ):
        workers = max(use.workers, run.cpus - 1)
        return (use.sample_ms or 0.0) * (run.samples_per_step or 0.0) / workers
    if use.cost.busy_share is not None:
        return use.cost.busy_share * run.step_ms
    return (use.sample_ms or 0.0) * (run.samples_per_step or 0.0) / use.workers


def by_sparing_host(
    run: Evidence, host_ms: float, method: Message, device_ms: float = 0.0, floor_ms: float = 0.0
) -> Gain | None:
    """The training thread does `host_ms` less in a step, the device `device_ms` less; what is left of each binds.

    Nothing makes the step shorter than `floor_ms`.

    None where nothing is gained, or it was not measured how far the device waits for the host.
    """
    work_ms = device_work_ms(run)
    if work_ms is None:
        return None
    spared_ms = min(host_ms, 0.98 * run.step_ms)
    gain = by_removing(run, spared_ms, method, floor_ms=max(work_ms - device_ms, feed_ms(run), floor_ms))
    return gain if gain is not None and gain.mid >= _NOTICED else None


def severity(gain: Gain) -> str:
    return "high" if gain.mid >= 1.2 else "medium" if gain.mid >= 1.05 else "low"
