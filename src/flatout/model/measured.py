"""What a run tells of its loading and of its device: what a batch costs, who makes it, the processors that are there
for it, and what the GPU has to do in a step.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from flatout.model.figures import (
    HANDOVER_MS,
    HANDOVER_PINNED_MS,
    HANDOVER_SHARE,
    LEAST_CPU,
    NEVER_DRAINED,
    SATURATED,
    SELDOM_EMPTY,
    STARVES,
)
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.ledger import WAITING, Nature


def batch_ms(run: Evidence, use: LoaderUse) -> float | None:
    """Milliseconds of one process for the samples of a step."""
    if use.sample_ms is None or run.samples_per_step is None:
        return None
    return use.sample_ms * run.samples_per_step


def ranks_here(run: Evidence) -> int:
    """Training processes that share the CPUs of one machine."""
    hosts = Counter(rank.host for rank in run.report.ranks)
    return max(1, max(hosts.values(), default=run.report.run.ranks))


def without_waiting_ms(run: Evidence) -> float:
    """A step that never waits for a batch: the computing side alone, which then binds."""
    rest_ms = run.step_ms - run.phase("data").ms
    busy_ms = run.device_busy_ms
    if busy_ms is None:
        return rest_ms
    # The host prepares the next step while the device computes: the slower of the two sets the pace. What it waits for
    # the device shrinks when that is done sooner.
    return max(rest_ms - (run.phase("sync").ms if run.on_gpu else 0.0), busy_ms)


def usual_handover_ms(run: Evidence) -> float:
    return HANDOVER_PINNED_MS + HANDOVER_SHARE * without_waiting_ms(run) if run.on_gpu else HANDOVER_MS


def handover_ms(run: Evidence) -> float:
    """What a batch costs the main process though it lies ready: as measured, else as is usual."""
    waiting, usual_ms = run.waiting, usual_handover_ms(run)
    if waiting is None or waiting.ready_ms is None:
        return usual_ms
    # A queue that is filling may hold batches out of turn; then a wait for the right one is in the figure.
    is_full = waiting.empty_share is not None and waiting.empty_share < SELDOM_EMPTY
    return waiting.ready_ms if is_full else min(waiting.ready_ms, usual_ms)


def computing_share(run: Evidence, use: LoaderUse) -> float:
    """Part of a sample's time in which a processor works on it; in the rest it waits for files, the network, a lock.

    1 where that is not known: then more workers than CPUs are never advised.
    """
    share = measured_computing_share(run, use)
    return 1.0 if share is None else share


def measured_computing_share(run: Evidence, use: LoaderUse) -> float | None:
    """The same; None where it is not known."""
    share: float | None = None
    each, data_ms = _cpu_available(run), run.phase("data").ms
    ledger = run.report.worker_ledger
    if use.workers and ledger is not None and ledger.loader == use.number and ledger.computing is not None:
        share = ledger.computing
    elif use.workers:
        busy = use.cost.busy_share if use.cost is not None else None
        share = use.processes.cpu_share / busy / each if use.processes is not None and busy else None
    elif seen := _natures_seen(run):
        # One more look that computes: with few of them it is rather taken to compute.
        share = (1 + sum(looks for nature, looks in seen if nature not in WAITING)) / (
            1 + sum(looks for _, looks in seen)
        )
    elif run.main_cpu_share is not None and data_ms > 0:
        # The main process's processor time beyond what the rest of the step takes at least, over its time in `data`.
        share = (run.main_cpu_share * run.step_ms - each * (run.step_ms - data_ms)) / (each * data_ms)
    return None if share is None else min(1.0, max(LEAST_CPU, share))


def _natures_seen(run: Evidence) -> list[tuple[Nature, float]]:
    """What the training thread was seen doing while it made batches, with the number of looks."""
    entries = (entry for entry in run.ledger.entries if entry.phase == "data")
    return [(entry.nature, entry.looks) for entry in entries if entry.nature != "unknown"]


def worker_demand(run: Evidence, use: LoaderUse) -> float:
    """Processors that a worker wants while it is on one: more than 1 where a library has threads of its own."""
    busy = use.cost.busy_share if use.cost is not None else None
    if use.processes is None or not busy:
        return 1.0
    return max(1.0, min(use.processes.cpu_share / busy, use.processes.threads or 1.0))


def library_threads(run: Evidence) -> float:
    """Processors that the training process takes beyond the threads torch was given: those of other libraries."""
    threads = float(run.live_torch.get("num_threads") or 0)
    return max(0.0, (run.main_cpu_share or 0.0) - max(1.0, threads)) if threads else 0.0


def main_demand(run: Evidence, use: LoaderUse | None) -> float:
    """Processors that the training process takes while it does not wait for a batch; 1 where that is not known."""
    makes = use is not None and not use.workers and not run.on_gpu
    at_work = 1.0 - (run.phase("data").share if use is not None and (use.workers or makes) else 0.0)
    if run.main_cpu_share is None or at_work <= 0:
        return 1.0
    # Batches that it makes itself are made by one thread.
    making = (1.0 - at_work) * computing_share(run, use) if use is not None and makes else 0.0
    # What it takes while it waits is in the mean too: no more than its threads is its work.
    threads = float(run.live_torch.get("num_threads") or 1)
    passing = (run.main_cpu_share + _kept_waiting(run) - making) / max(at_work, LEAST_CPU)
    return min(max(1.0, threads), max(LEAST_CPU, passing))


def _kept_waiting(run: Evidence) -> float:
    """Processors that the training process wanted besides, while its own threads or workers had them."""
    machine = run.report.machine
    if machine is None or run.on_gpu:
        return 0.0
    return sum(part.by_own or 0.0 for part in (machine.training, machine.helpers) if part is not None)


def others_demand(run: Evidence, use: LoaderUse | None) -> float:
    """Processors that processes of others want, of those this run may use."""
    machine = run.report.machine
    if machine is not None and machine.other_cores is not None and not is_saturated(run):
        return machine.other_cores
    taken, host, load = run.series.get("cpu_share"), run.report.host, run.series.get("load_1min")
    if taken is None or host is None or host.cpu_cores is None:
        return 0.0
    processors = _processors(run)
    if run.cpus < processors and not is_saturated(run):
        return 0.0  # they may be at work on processors that this run may not use
    others = max(0.0, fmean(taken.values) * processors - host.cpu_cores)
    if is_saturated(run) and load is not None:
        # Then they want more than they get: the load counts those that wait.
        own = ranks_here(run) * (1 + (use.workers if use is not None else 0))
        others = max(others, fmean(load.values) - own)
    return others * min(1.0, run.cpus / processors)


def _cpu_available(run: Evidence) -> float:
    """What a process gets that always wants a processor: less than 1 of it on a machine with too much to do."""
    load = run.series.get("load_1min")
    if not is_saturated(run):
        return 1.0
    if load is None:
        return LEAST_CPU
    own = ranks_here(run) * (1 + sum(use.workers for use in run.loaders if use.trains))
    # Halved for caution: the load is a mean over a minute.
    return min(1.0, 0.5 * _processors(run) / max(fmean(load.values), own, 1.0))


def is_saturated(run: Evidence) -> bool:
    taken = run.series.get("cpu_share")
    return taken is not None and fmean(taken.values) >= SATURATED


def _processors(run: Evidence) -> float:
    """All of the machine's, as its load is that of all."""
    known = run.report.environment.get("cpus")
    return float(known) if isinstance(known, int | float) and known else run.cpus


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
    if gpu.drained_share is not None and gpu.drained_share < NEVER_DRAINED:
        return run.step_ms
    if gpu.util_mean is not None:
        return min(1.0, gpu.util_mean / 100) * run.step_ms
    if busy_ms is None or gpu.drained_share is None:
        return None
    return busy_ms * (1 - gpu.drained_share)


def possible_work_ms(run: Evidence) -> float | None:
    """The same, but none while it starves for want of a batch; its timeline where nothing else tells."""
    work_ms = device_work_ms(run)
    if work_ms is None:
        return run.device_busy_ms
    starves = run.on_gpu and run.starved_ms >= STARVES * run.step_ms
    return min(work_ms, run.step_ms - run.starved_ms) if starves else work_ms


def is_work_recorded(run: Evidence) -> bool:
    """Is the device's work known by its kernels, those of a training step alone?"""
    return run.report.gpu is not None and run.report.gpu.kernels is not None
