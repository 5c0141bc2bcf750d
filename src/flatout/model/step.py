"""The model of a training step: records of what takes its time, made from the evidence of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from flatout.model.figures import SETS_PACE, STEPS_AHEAD
from flatout.model.measured import (
    batch_ms,
    computing_share,
    handover_ms,
    is_saturated,
    is_work_recorded,
    main_demand,
    measured_computing_share,
    others_demand,
    possible_work_ms,
    ranks_here,
    usual_handover_ms,
    worker_demand,
)
from flatout.records.evidence import Evidence, LoaderUse, Waiting
from flatout.records.ledger import SCRIPT

PAUSES = ("eval", "checkpoint", "logging")
# Of the training thread's own work, in the order in which it is done.
HOST = ("h2d", "forward", "backward", "optimizer", "gc", "other")
# Parts of the ledger that are not the model's computing, in phases that hold both.
_ASIDE = SCRIPT | {"waiting"}
PASSES = ("forward", "backward", "optimizer")
_NEVER = math.inf
# Of the samples that were trained on, those whose making was measured, from which their mean is that of all.
_COUNTED = 0.6


@dataclass(frozen=True, slots=True)
class Loader:
    """The training's loader. Milliseconds of a step unless they say otherwise."""

    # 0: the training thread makes the batches itself.
    workers: int
    # Batches that each worker makes ahead.
    prefetch: int
    # One process for the samples of a step, and the part of it in which it is on a processor.
    batch_ms: float
    computing: float
    # The training thread for a batch that lies ready: drawing indices, receiving it.
    taking_ms: float
    # What taking costs at least if another process has made it, where none does so far.
    handover_ms: float
    # Batches that take far longer than the others: which share, and how long each.
    slow_share: float = 0.0
    slow_ms: float = 0.0
    # The slowest of all.
    slowest_ms: float = 0.0
    # Steps from one start of an iterator to the next, what each start costs beyond making a batch, and how much longer
    # the passes of the step after it take.
    epoch_steps: float = _NEVER
    start_ms: float = 0.0
    after_start_ms: float = 0.0
    # Not all batches were counted, but the first of each worker, which take longest: `batch_ms` is the most it may be.
    is_most: bool = False
    # flatout's own loader takes more workers when they are wanted.
    adapts: bool = False
    # The processors that each worker wants while it is on one: more than 1 where a library has threads of its own.
    wants: float = 1.0
    # Was `computing` measured? It is 1 else.
    is_computing_known: bool = True
    # Workers live on from epoch to epoch: passes after a start are slower because the next batches are being made.
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU: its work in a step (None where that is not known), and how the host waits for it."""

    work_ms: float | None
    # What the host waits at a sync beyond the device's remaining work: what it was given last has yet to begin.
    lag_ms: float = 0.0
    # 1: the host waits for the device in each step, as it did; 0: it never waits.
    synced: float = 0.0


@dataclass(frozen=True, slots=True)
class Processors:
    """Those that the run may use, what its training process takes of them at work, and what others take."""

    count: float
    main: float = 1.0
    others: float = 0.0
    # Others slowed the run down, or every processor was at work.
    is_crowded: bool = False
    # Threads of the training process that have to be at work together, as each part of a pass is done when the last of
    # them is: between 1, if they get their processors at the same times, and all of them, if at times of their own.
    together: float = 1.0


@dataclass(frozen=True, slots=True)
class Pause:
    """An evaluation, a checkpoint or logging: milliseconds of a mean step, and whether one outlasts every queue."""

    ms: float
    is_long: bool = True
    # Steps from one to the next, at least 1.
    every: float = 1.0


@dataclass(frozen=True, slots=True)
class StepModel:
    """A mean step, and how steps differ. Milliseconds of a step unless they say otherwise."""

    # As it was measured.
    step_ms: float
    # The training thread's own work by phase, and its pauses.
    host_ms: dict[str, float]
    pauses: dict[str, Pause] = field(default_factory=dict)
    loader: Loader | None = None
    # None: the training thread computes itself.
    device: Device | None = None
    processors: Processors = field(default_factory=lambda: Processors(1.0))
    # Of the training thread's own work and its pauses: neither computing nor waiting for a batch or the device, but
    # asleep.
    idle_ms: float = 0.0
    # Of `host_ms`: what is not the model's computing but other work, or waiting.
    aside_ms: dict[str, float] = field(default_factory=dict)
    # How much of what a wait does to computing other work does as well: it slows it down in some runs, in others not.
    work_cools: float = 0.0
    # What is left of the measured times of computing, and of other work beside it, where nothing makes them longer.
    warm: tuple[float, float] = (1.0, 1.0)
    # Something beside the training thread needs so long in each step.
    least_ms: float = 0.0
    # The training thread's own work in single steps, in order, as multiples of its mean.
    spread: tuple[float, ...] = ()
    # How often the training thread was looked at to learn what its lines take.
    looks: float = 0.0
    # Half of the 95% interval of the mean step, as a share of it.
    step_error: float = 0.0
    # How much slower the slowest stretch of steps was than the quickest.
    varied: float = 1.0

    @property
    def own_ms(self) -> float:
        return sum(self.host_ms.values())

    @property
    def beside_ms(self) -> float:
        """Of the training thread's own work, what is not the model's computing."""
        return min(self.own_ms, max(self.asleep_ms, sum(self.aside_ms.values())))

    @property
    def asleep_ms(self) -> float:
        """Of the training thread's own work, what it sleeps: in its pauses first."""
        return min(self.own_ms, max(0.0, self.idle_ms - sum(pause.ms for pause in self.pauses.values())))

    def paused_ms(self, is_long: bool) -> float:
        return sum(pause.ms for pause in self.pauses.values() if pause.is_long == is_long)


def build_model(run: Evidence) -> StepModel | None:
    """The run as it was; None without steps."""
    step_ms = run.step_ms
    if step_ms <= 0:
        return None
    use = run.training_loader
    loader = None if use is None else _loader(run, use)
    host = {name: run.phase(name).ms for name in HOST}
    pauses = {
        name: Pause(ms, _is_long(run, name), _steps_between(run, name))
        for name in PAUSES
        if (ms := run.phase(name).ms) > 0
    }
    device = _device(run, sum(host.values()), sum(pause.ms for pause in pauses.values() if pause.is_long))
    host, device = _with_pace_of_device(run, host, device)
    if loader is None:
        # Nobody knows what it waits for there: it is work like any other.
        host["data"] = run.phase("data").ms
    if device is None:
        host["sync"] = run.phase("sync").ms
    warmup = run.report.warmup
    if loader is not None and loader.after_start_ms:
        host = _without_starts(host, loader.after_start_ms / loader.epoch_steps)
    demand = main_demand(run, use)
    return StepModel(
        step_ms=step_ms,
        host_ms=host,
        pauses=pauses,
        loader=loader,
        device=device,
        processors=Processors(
            max(run.cpus / ranks_here(run), 1e-9),
            demand,
            others_demand(run, use) / ranks_here(run),
            is_crowded=is_saturated(run) or (run.report.machine is not None and run.report.machine.disturbed),
            together=0.5 * (1.0 + max(1.0, demand)) if device is None else 1.0,
        ),
        idle_ms=_idle_ms(run),
        aside_ms=_aside_ms(run, host),
        spread=run.step_spread,
        looks=run.line_looks,
        step_error=warmup.step_error or 0.0 if warmup is not None else 0.0,
        varied=warmup.varied_ms[1] / warmup.varied_ms[0] if warmup is not None and warmup.varied_ms else 1.0,
    )


def _aside_ms(run: Evidence, host: dict[str, float]) -> dict[str, float]:
    """What the script does in its own phases beside the model, by the ledger; all of some phases."""
    whole = [name for name in ("gc", "sync", "data") if name in host]
    aside: dict[str, float] = {name: host[name] for name in whole}
    for entry in run.ledger.entries:
        if entry.phase in host and entry.phase not in whole and entry.part in _ASIDE:
            aside[entry.phase] = aside.get(entry.phase, 0.0) + entry.ms
    return {name: min(ms, host[name]) for name, ms in aside.items() if ms > 0}


def _steps_between(run: Evidence, phase: str) -> float:
    if phase == "eval":
        count: float = run.evaluations.count if run.evaluations is not None else 0
    else:
        # Calls that belong together come in the same step.
        count = max((site.count for site in run.report.pauses if site.op == phase), default=0)
    return max(1.0, run.report.run.steps / count) if count else 1.0


def _without_starts(host: dict[str, float], slower_ms: float) -> dict[str, float]:
    """The passes as they are amid an epoch: what those after a start take longer is the loader's, once a start."""
    passes_ms = sum(host[name] for name in PASSES)
    part = max(0.0, 1.0 - slower_ms / passes_ms) if passes_ms > 0 else 1.0
    return {name: ms * part if name in PASSES else ms for name, ms in host.items()}


def _idle_ms(run: Evidence) -> float:
    """What a step takes beyond the processor time of its process and beyond its wait for a batch; 0 where not known.

    Where torch has several threads, what the looks at lines tell of waiting.
    """
    if not run.on_gpu and run.live_torch.get("num_threads") != 1:
        return run.ledger.share_of("waiting") * run.step_ms
    if run.on_gpu or run.main_cpu_share is None:
        return 0.0
    machine = run.report.machine
    # Ready to run, but others did.
    delay_ms = 0.0 if machine is None else machine.delay_ms or 0.0
    return max(0.0, run.step_ms * (1.0 - run.main_cpu_share) - run.phase("data").ms - delay_ms)


def _is_long(run: Evidence, phase: str) -> bool:
    """Does one pause last longer than a queue of batches, or of launches, reaches?"""
    if phase == "eval":
        return True
    sites = [site for site in run.report.pauses if site.op == phase]
    count = sum(site.count for site in sites)
    return count > 0 and 1e3 * sum(site.total_s for site in sites) / count > STEPS_AHEAD * run.step_ms


def _with_pace_of_device(
    run: Evidence, host: dict[str, float], device: Device | None
) -> tuple[dict[str, float], Device | None]:
    """Where the device sets the pace, the passes on the training thread are mostly waits for a place in its queue.

    What they take without was recorded in a step that began with an empty queue.
    """
    use = run.report.gpu.kernels if run.report.gpu is not None else None
    if use is None or device is None or device.work_ms is None or not use.host_ms:
        return host, device
    training_ms = run.step_ms - sum(run.phase(name).ms for name in PAUSES)
    if device.work_ms < SETS_PACE * training_ms:
        return host, device
    own = {name: min(ms, use.host_ms.get(name, ms)) for name, ms in host.items()}
    return own, replace(device, work_ms=max(device.work_ms, training_ms), lag_ms=0.0)


def _device(run: Evidence, host_ms: float, paused_ms: float) -> Device | None:
    if not run.on_gpu:
        return None
    sync_ms, work_ms = run.phase("sync").ms, possible_work_ms(run)
    if work_ms is None:
        return Device(None, lag_ms=sync_ms, synced=1.0 if sync_ms > 0 else 0.0)
    if not is_work_recorded(run):
        # In a long pause, which mostly evaluates, it works about as much.
        work_ms *= max(0.0, 1.0 - paused_ms / run.step_ms)
    lag_ms = sync_ms - max(0.0, work_ms - host_ms)
    return Device(work_ms, max(0.0, lag_ms), synced=1.0 if sync_ms > 0 else 0.0)


def _loader(run: Evidence, use: LoaderUse) -> Loader | None:
    making_ms, data_ms = batch_ms(run, use), run.phase("data").ms
    if making_ms is None:
        return None
    made_ms = min(making_ms, data_ms)
    alone = Loader(
        workers=use.workers,
        prefetch=int(use.settings.get("prefetch_factor") or 2),
        batch_ms=made_ms,
        computing=computing_share(run, use),
        taking_ms=data_ms - made_ms,
        handover_ms=usual_handover_ms(run),
        is_computing_known=measured_computing_share(run, use) is not None,
    )
    if not use.workers:
        return alone
    waiting, taking_ms = run.waiting, min(handover_ms(run), data_ms)
    slow_share, slow_ms = _slow_batches(use, waiting, making_ms)
    with_workers = replace(
        alone,
        batch_ms=making_ms,
        wants=worker_demand(run, use),
        stays=bool(use.settings.get("persistent_workers")),
        taking_ms=taking_ms,
        handover_ms=min(taking_ms, alone.handover_ms),
        slow_share=slow_share,
        slow_ms=slow_ms,
        slowest_ms=use.cost.slowest_batch_ms if use.cost is not None else 0.0,
        adapts=any(
            remedy.id == "loader.workers" and remedy.value == "auto" and remedy.state == "applied"
            for remedy in run.report.remedies
        ),
    )
    if waiting is None or waiting.first_ms is None or waiting.first_share <= 0:
        return with_workers
    return replace(
        with_workers,
        epoch_steps=1.0 / min(1.0, waiting.first_share),
        start_ms=max(0.0, waiting.first_ms - making_ms - taking_ms),
        after_start_ms=waiting.first_slower_ms or 0.0,
        is_most=_knows_first_only(run, use),
    )


def _knows_first_only(run: Evidence, use: LoaderUse) -> bool:
    """Workers that end with their epoch may be gone before more than their first batches were counted."""
    trained = run.report.run.steps * (run.samples_per_step or 0.0)
    return use.cost is not None and use.cost.samples < _COUNTED * trained


def _slow_batches(use: LoaderUse, waiting: Waiting | None, making_ms: float) -> tuple[float, float]:
    """The share of batches that come late by themselves, and how long each takes; none where few do."""
    if waiting is None or use.cost is None or not waiting.late_share or waiting.late_share > 0.5:
        return 0.0, 0.0
    share = waiting.late_share
    # All others take something too: at least a quarter of the mean.
    slow_ms = min(use.cost.slowest_batch_ms, (0.25 + 0.75 / share) * making_ms)
    return (share, slow_ms) if slow_ms > 2 * making_ms else (0.0, 0.0)
