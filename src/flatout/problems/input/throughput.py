"""How fast the loader delivers batches, how many workers a training needs, and what is gained when loading changes.

Shared by the problems about loading. A gain is reckoned in milliseconds of a step, which takes as long as the slowest
of computing, loading and the work of the CPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean

from flatout.problems.prediction import WORTH, by_removing, by_step, processors_floor_ms, without_waiting_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import Message, message
from flatout.records.report import Gain

# Workers slow each other and the main process down a little: the factor on a worker's time in a cautious estimate.
_CONTENTION = 1.3
# The expected factor: data goes through shared memory, and processes share CPU caches.
_IN_A_WORKER, _AMONG_MORE = 1.2, 1.1
# Receiving a batch costs the main process about this much, whoever made it: opening what another process has written,
# one tensor at a time. With a GPU the pinning thread does it. The memory is then touched for the first time.
_HANDOVER_SHARE = 0.02
_HANDOVER_MS, _HANDOVER_PINNED_MS = 1.5, 0.3
_FIRST_TOUCH_MS = 1.2
_ALL_AT_WORK = 1.08
# Workers and the pinning thread slow the main thread's launches down.
_CROWDED = 1.15
# A queue that is empty less often than this counts as full: taking a batch from it is not a wait.
_SELDOM_EMPTY = 0.3
# More processes than this for one loader cost more memory and start-up time than they gain.
_MOST_WORKERS = 64
# From this share on the machine's CPUs count as saturated: a process that could compute may have to wait for one.
_SATURATED = 0.85
_PAUSES = ("eval", "checkpoint", "logging")

# Workers that are at work for this share of the time or more are what the training waits for.
BUSY = 0.7
# Samples that were made this often on average are made again and again: before, no cache can have held them.
REPEATED = 1.5


def batch_ms(run: Evidence, use: LoaderUse) -> float | None:
    """Milliseconds of one process for the samples of a step."""
    if use.sample_ms is None or run.samples_per_step is None:
        return None
    return use.sample_ms * run.samples_per_step


def ranks_here(run: Evidence) -> int:
    """Training processes that share the CPUs of one machine."""
    hosts = Counter(rank.host for rank in run.report.ranks)
    return max(1, max(hosts.values(), default=run.report.run.ranks))


def spare_cpus(run: Evidence) -> int:
    """Processors for the workers of one rank: those allowed, less one for each rank, shared by the ranks."""
    ranks = ranks_here(run)
    return max(0, (math.floor(run.cpus) - ranks) // ranks)


def epoch_start_ms(run: Evidence, sooner_ms: float = 0.0) -> float:
    """Milliseconds a step that go to the first batch of each epoch, with making the iterator.

    `sooner_ms`: what a worker will need less for that batch.
    """
    waiting = run.waiting
    if waiting is None or waiting.first_ms is None:
        return 0.0
    return waiting.first_share * max(0.0, waiting.first_ms - sooner_ms)


def steady_wait_ms(run: Evidence) -> float:
    """Milliseconds a step that the computing side stands still for a batch, without the first of each epoch."""
    data_ms = run.phase("data").ms
    if data_ms <= 0:
        return 0.0
    return run.starved_ms * max(0.0, 1.0 - epoch_start_ms(run) / data_ms)


def starving_loader(run: Evidence) -> LoaderUse | None:
    """The training's loader, where steps wait for its batches long enough to be worth a finding."""
    use = run.training_loader
    return use if use is not None and run.step_ms and steady_wait_ms(run) >= WORTH * run.step_ms else None


def exposed_share(run: Evidence) -> float:
    """Part of the time in `data` in which nothing computes: on a GPU some of it passes while the device still works."""
    data_ms = run.phase("data").ms
    return min(1.0, run.starved_ms / data_ms) if data_ms else 0.0


def usual_handover_ms(run: Evidence) -> float:
    return _HANDOVER_SHARE * without_waiting_ms(run) + (_HANDOVER_PINNED_MS if run.on_gpu else _HANDOVER_MS)


def handover_ms(run: Evidence) -> float:
    """What a batch costs the main process though it lies ready: as measured, else as is usual."""
    waiting, usual_ms = run.waiting, usual_handover_ms(run)
    if waiting is None or waiting.ready_ms is None:
        return usual_ms
    # A queue that is filling may hold batches out of turn; then a wait for the right one is in the figure.
    is_full = waiting.empty_share is not None and waiting.empty_share < _SELDOM_EMPTY
    return waiting.ready_ms if is_full else min(waiting.ready_ms, 1.5 * usual_ms)


def training_ms(run: Evidence) -> float:
    """Of a step, without evaluations, checkpoints and logging."""
    return run.step_ms - sum(run.phase(name).ms for name in _PAUSES)


def busy_share(run: Evidence, use: LoaderUse) -> float | None:
    """Share of the time between epoch starts and pauses in which the workers were making samples."""
    work_ms = batch_ms(run, use)
    feeding_ms = training_ms(run) - epoch_start_ms(run)
    if work_ms is None or not use.workers or feeding_ms <= 0:
        return None
    return min(1.0, work_ms / use.workers / feeding_ms)


def has_busy_workers(run: Evidence, use: LoaderUse) -> bool:
    """Workers without time to spare: faster ones, or more, would make the training faster."""
    return (busy_share(run, use) or 0.0) >= BUSY


def times_loaded(use: LoaderUse) -> float | None:
    """How often each sample was made in the run, on average; None where the dataset has no length."""
    length = use.settings.get("dataset_len")
    if use.cost is None or not isinstance(length, int) or length < 1:
        return None
    return use.cost.samples / length


def computing_share(run: Evidence, use: LoaderUse) -> float:
    """Part of a sample's time in which a processor works on it; in the rest it waits for files, the network, a lock.

    1 where that is not known: then more workers than CPUs are never advised.
    """
    share, each, data_ms = 1.0, _cpu_available(run), run.phase("data").ms
    if use.workers:
        busy = use.cost.busy_share if use.cost is not None else None
        share = use.processes.cpu_share / busy / each if use.processes is not None and busy else 1.0
    elif run.main_cpu_share is not None and data_ms > 0:
        # The main process's processor time beyond what the rest of the step takes at least, over its time in `data`.
        share = (run.main_cpu_share * run.step_ms - each * (run.step_ms - data_ms)) / (each * data_ms)
    return min(1.0, max(0.02, share))


def _cpu_available(run: Evidence) -> float:
    """What a process gets that always wants a processor: less than 1 of it on a machine with too much to do."""
    load = run.series.get("load_1min")
    if not _is_saturated(run):
        return 1.0
    if load is None:
        return 0.02
    own = ranks_here(run) * (1 + sum(use.workers for use in run.loaders if use.trains))
    # Halved for caution: the load is a mean over a minute.
    return min(1.0, 0.5 * _processors(run) / max(fmean(load.values), own, 1.0))


def _is_saturated(run: Evidence) -> bool:
    taken = run.series.get("cpu_share")
    return taken is not None and fmean(taken.values) >= _SATURATED


def _processors(run: Evidence) -> float:
    """All of the machine's, as its load is that of all."""
    known = run.report.environment.get("cpus")
    return float(known) if isinstance(known, int | float) and known else run.cpus


def workers_for(run: Evidence, use: LoaderUse) -> int:
    """The workers that keep a step from waiting, as far as there are CPUs; 0 if there is none for them.

    Workers that mostly wait do not need a CPU each, so there may be more of them than CPUs.
    """
    work_ms = batch_ms(run, use)
    target_ms = without_waiting_ms(run)
    spare = spare_cpus(run)
    if (
        work_ms is not None
        and work_ms > target_ms
        and not (use.workers or run.on_gpu)
        and run.cpus >= 2 * ranks_here(run)
    ):
        spare += 1  # a training process that mostly waits leaves most of its own processor to one more
    if work_ms is None or spare < 1:
        return 0
    needed = math.ceil(_CONTENTION * work_ms / max(target_ms, 1e-6))
    return max(1, min(needed, math.floor(spare / computing_share(run, use)), _MOST_WORKERS))


def gain_with_workers(run: Evidence, use: LoaderUse, workers: int, starts_ms: float = 0.0) -> Gain | None:
    """What so many workers gain over the run as it was, when epochs still cost `starts_ms` a step to begin."""
    work_ms = batch_ms(run, use)
    if work_ms is None:
        return None
    slower = _AMONG_MORE if use.workers else _IN_A_WORKER
    touch_ms = 0.0 if use.workers or run.on_gpu else _FIRST_TOUCH_MS
    loading_ms, least_ms = slower * work_ms / workers, _least_ms(run, use, workers)
    if not use.workers and not run.on_gpu:
        fed_ms = without_waiting_ms(run) + handover_ms(run) + touch_ms
        all_ms = (slower * work_ms * computing_share(run, use) + fed_ms) / max(run.cpus / ranks_here(run), 1e-9)
        # Processors that are all at work share caches and memory.
        least_ms = max(least_ms, all_ms * (_ALL_AT_WORK if all_ms > _SATURATED * max(fed_ms, loading_ms) else 1.0))
    words = message("input.loading_over_workers", work_ms=work_ms, workers=workers, cpus=run.cpus)
    loading = Loading(loading_ms, words, starts_ms, _CONTENTION / slower, least_ms, touch_ms=touch_ms)
    return gain_at(run, loading)


@dataclass(frozen=True, slots=True)
class Loading:
    """The loader after a fix: what it needs for the samples of a step, and `caution` times that at worst."""

    ms: float
    words: Message
    # Milliseconds a step that beginning epochs still costs.
    starts_ms: float = 0.0
    caution: float = 1.1
    # No step is shorter than this. Unless given: what the CPUs need for the work of a step, less what is spared.
    least_ms: float | None = None
    spared_ms: float = 0.0
    # Touching a batch's memory for the first time, in the main process.
    touch_ms: float = 0.0


def gain_at(run: Evidence, loading: Loading) -> Gain | None:
    """What is gained when the loader is as fast as that."""
    target_ms = without_waiting_ms(run)
    least_ms = processors_floor_ms(run, loading.spared_ms) if loading.least_ms is None else loading.least_ms
    handed_ms = handover_ms(run) + loading.touch_ms
    fed_ms, busy_ms = target_ms + handed_ms, run.device_busy_ms
    if busy_ms is not None:
        # On a GPU the host takes the next batch while the device still computes.
        host_ms = run.step_ms - run.phase("data").ms - run.phase("sync").ms
        fed_ms = max(busy_ms, _CROWDED * host_ms + handed_ms)
    ideal_ms = max(target_ms, loading.ms, least_ms) + loading.starts_ms
    expected_ms = max(fed_ms, loading.ms, least_ms) + loading.starts_ms
    cautious_ms = max(fed_ms + handed_ms, loading.caution * loading.ms, 1.15 * least_ms) + loading.starts_ms
    method = message("input.slowest_of", computing_ms=target_ms, loading=loading.words)
    return by_step(run, cautious_ms, expected_ms, ideal_ms, method)


def _least_ms(run: Evidence, use: LoaderUse, workers: int) -> float:
    """What the CPUs need for the work of a step with so many workers.

    Where others have taken them all, a run gets its share by the number of processes that want one.
    """
    least_ms = processors_floor_ms(run)
    host, load = run.report.host, run.series.get("load_1min")
    if not _is_saturated(run) or load is None or host is None or not host.cpu_cores:
        return least_ms
    processors = _processors(run)
    others = fmean(load.values) - ranks_here(run) * (1 + use.workers)
    if others <= 0 or host.cpu_cores > _SATURATED * processors:
        return least_ms
    own = ranks_here(run) * (1 + workers)
    return max(least_ms, run.step_ms * host.cpu_cores / (processors * min(1.0, own / (own + others))))


def gain_by_cheaper(
    run: Evidence,
    use: LoaderUse,
    left_ms: tuple[float, float, float],
    method: Message,
    keeps_workers: bool = False,
) -> Gain | None:
    """What is gained when samples get cheaper to make.

    `left_ms` is what one process then takes for the samples of a step: at worst, expected, at best. `keeps_workers`:
    epochs no longer begin with a start of workers.

    Processors that making samples no longer takes are the training's own again, so their old work is no bound.
    """
    if not use.workers:
        exposed, data_ms = exposed_share(run), run.phase("data").ms
        worst, expected, best = (run.step_ms - exposed * max(0.0, data_ms - left) for left in left_ms)
        return by_step(run, worst, expected, best, method)
    fed_ms = without_waiting_ms(run) + (0.0 if run.on_gpu else usual_handover_ms(run))
    starts_ms = 0.0 if keeps_workers else epoch_start_ms(run)
    worst, expected, best = (max(fed_ms, left / use.workers) + starts_ms for left in left_ms)
    return by_step(run, worst, expected, best, method)


# An iterator for every second batch or more is not an epoch.
_PER_BATCH = 0.5


@dataclass(frozen=True, slots=True)
class StartCost:
    """Milliseconds: of one start beyond a running epoch, and of a mean step."""

    each_ms: float
    per_step_ms: float
    starts: int


def is_per_batch(run: Evidence) -> bool:
    """Is an iterator of the training loader made for nearly every batch?"""
    return run.waiting is not None and run.waiting.first_share >= _PER_BATCH


def start_cost(run: Evidence, use: LoaderUse) -> StartCost | None:
    """What starting this loader's workers costs; None where it starts too seldom to say."""
    if not use.workers or use.epochs < 3 or not run.step_ms:
        return None
    return _start_of_training(run, use) if use.trains else _start_of_other(run, use)


def _start_of_training(run: Evidence, use: LoaderUse) -> StartCost | None:
    """The first wait of an epoch, less what it would be with workers alive: one batch has to be made.

    With it the passes that follow, as far as they take longer than others do.
    """
    waiting = run.waiting
    if waiting is None or waiting.first_ms is None or is_per_batch(run):
        return None
    refill_ms = (use.sample_ms or 0.0) * (use.batch_size or 0) + handover_ms(run)
    each_ms = waiting.first_ms - max(waiting.rest_ms, refill_ms) + (waiting.first_slower_ms or 0.0)
    return StartCost(each_ms, waiting.first_share * each_ms, use.epochs) if each_ms > 0 else None


def _start_of_other(run: Evidence, use: LoaderUse) -> StartCost | None:
    """A loader that is read between the training's steps, as in evaluations: until its first fetch begins."""
    each_s = max(use.iterator_s or 0.0, (use.cost.startup_s if use.cost is not None else None) or 0.0)
    per_step_ms = min(1e3 * each_s * use.epochs / max(1, run.report.run.steps), run.phase("eval").ms)
    return StartCost(1e3 * each_s, per_step_ms, use.epochs) if per_step_ms > 0 else None


def gain_without_starts(run: Evidence, start: StartCost, more_ms: float = 0.0) -> Gain | None:
    """The starts go from the mean step, and `more_ms` with them."""
    removed_ms = start.per_step_ms + more_ms
    method = message("input.without_starts", starts=start.starts, each_ms=start.each_ms, removed_ms=removed_ms)
    return by_removing(run, removed_ms, method, floor_ms=run.device_busy_ms or 0.0)
