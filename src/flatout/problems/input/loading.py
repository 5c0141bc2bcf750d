"""How fast the loader delivers batches, how many workers a training needs, what beginning an epoch costs; and beyond
the time it takes: do the workers compute or wait for storage, are a few late batches waited for, which lines make a
sample, does the loader have the workers that were configured?

Shared by the problems about loading. What a change gains is the model's to say.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from flatout.model.edits import BatchCosts, Edit, Edits, LessPause, NoStarts
from flatout.model.measured import batch_ms, computing_share, handover_ms, ranks_here, without_waiting_ms
from flatout.problems.found import WORTH
from flatout.problems.hot_lines import HotLoop, find_hot_loops, is_of_loop, lines_in, place_name, text_at
from flatout.records.evidence import Evidence, LoaderUse, Value
from flatout.records.message import Message, message
from flatout.records.report import LineCost, WorkerCost
from flatout.words import english

# A worker takes this many times longer at worst when there are more of them: they share caches and memory.
_CONTENTION = 1.3
# More processes than this for one loader cost more memory and start-up time than they gain.
_MOST_WORKERS = 64
_PAUSES = ("eval", "checkpoint", "logging")

# Processors that workers have, from which on they keep a training on the same ones waiting.
_CROWDS = 0.2
# Workers that are at work for this share of the time or more are what the training waits for.
BUSY = 0.7
# Samples that were made this often on average are made again and again: before, no cache can have held them.
REPEATED = 1.5
# Of the memory that is left, a cache may take this much.
_MEMORY = 0.5


def spare_cpus(run: Evidence) -> int:
    """Processors for the workers of one rank: those allowed, less one for each rank, shared by the ranks."""
    ranks = ranks_here(run)
    return max(0, (math.floor(run.cpus) - ranks) // ranks)


def epoch_start_ms(run: Evidence) -> float:
    """Milliseconds a step that go to the first batch of each epoch, with making the iterator."""
    waiting = run.waiting
    if waiting is None or waiting.first_ms is None:
        return 0.0
    return waiting.first_share * max(0.0, waiting.first_ms)


def steady_wait_ms(run: Evidence) -> float:
    """Milliseconds a step that the computing side stands still for a batch, without the first of each epoch."""
    data_ms = run.phase("data").ms
    if data_ms <= 0:
        return 0.0
    return run.starved_ms * max(0.0, 1.0 - epoch_start_ms(run) / data_ms)


@dataclass(frozen=True, slots=True)
class Feed:
    """The training's loader, and what it takes in milliseconds of one process: a sample, and the samples of a step."""

    use: LoaderUse
    cost: WorkerCost
    sample_ms: float
    work_ms: float


def starving_feed(run: Evidence) -> Feed | None:
    """Where steps wait for its batches long enough to be worth a finding, and it is known what a batch takes."""
    return _feed(run) if run.step_ms and steady_wait_ms(run) >= WORTH * run.step_ms else None


def _feed(run: Evidence) -> Feed | None:
    use = run.training_loader
    work_ms = None if use is None else batch_ms(run, use)
    if use is None or not use.cost or not use.sample_ms or not work_ms:
        return None
    return Feed(use, use.cost, use.sample_ms, work_ms)


def sample_bound_feed(run: Evidence) -> Feed | None:
    """Where samples that are made faster would help.

    Either steps wait for batches, and workers, if there are any, have no time to spare; or the workers have processors
    that the training on a CPU wants itself.
    """
    feed = _feed(run)
    if feed is None:
        return None
    is_late = starving_feed(run) is not None and (not feed.use.workers or has_busy_workers(run, feed.use))
    return feed if is_late or do_workers_crowd(run, feed.use) else None


def do_workers_crowd(run: Evidence, use: LoaderUse) -> bool:
    """Is the training kept waiting for a processor by the run itself, and do the workers take a good part of one?"""
    machine = run.report.machine
    if run.on_gpu or machine is None or machine.training is None or not use.workers or use.processes is None:
        return False
    return (machine.training.by_own or 0.0) >= WORTH and use.processes.cpu_share * use.workers >= _CROWDS


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


def part_in_memory(run: Evidence, use: LoaderUse) -> float:
    """Part of the samples that fits in memory, by the bytes of a batch; all, where those are not known."""
    per_step: float = sum(site.bytes_per_step for site in run.report.copies) or use.batch_bytes or 0
    limits = [run.report.environment.get(name) for name in ("memory_limit_bytes", "memory_bytes")]
    limit = min((float(limit) for limit in limits if isinstance(limit, int | float)), default=0.0)
    if not per_step or not limit or not run.samples_per_step or run.report.host is None:
        return 1.0
    free = _MEMORY * max(0.0, limit - (run.report.host.memory_peak or 0))
    return min(1.0, free / (per_step / run.samples_per_step * int(use.settings["dataset_len"])))


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


def without_starts(use: LoaderUse, start: StartCost) -> Edit:
    """Workers stay: of the training's loader, or of one that is read in evaluations."""
    return NoStarts(start.each_ms) if use.trains else LessPause("eval", start.per_step_ms)


def cheaper_batches(now_ms: float, left_ms: Iterable[float], *more: Edit) -> Edits:
    """One process then takes so long for the samples of a step: at worst, as expected, at best."""
    return Edits.between((BatchCosts(ms, now_ms), *more) for ms in left_ms)


# What a run shows about its loading beyond the time it takes.


# A sample that needs a processor for less of its time than this is waiting for the most part.
_WAITS = 0.5
# From here on a figure speaks of storage; below, every run has some of it.
_READ_BYTES_PER_S = 1e6
_FAULTS_PER_S = 20.0
_IOWAIT_SHARE = 0.05
_PRESSURE_PERCENT = 20.0


def waiting_share(run: Evidence, use: LoaderUse) -> float:
    """Part of a sample's time that is waiting, where it is most of it and the workers have no time left; else 0."""
    busy = busy_share(run, use)
    if busy is None or busy < BUSY:
        return 0.0
    natures = work_natures(run)
    # Where it is known what is waited for, other threads and processes are no storage.
    waits = sum(natures.get(nature, 0.0) for nature in _REMOTE) if natures else 1.0 - computing_share(run, use)
    return waits if waits > _WAITS else 0.0


# What making samples may mostly be, by natures in the ledger.
_KINDS = {
    "python": ("python",),
    "native": ("native",),
    "storage": ("file", "pipe"),
    "waiting": ("lock", "process", "sleep"),
    "crowded": ("not running",),
}
# What a wait for something far away is seen as; a client of a service may sleep between its questions.
_REMOTE = ("file", "pipe", "sleep")


def work_natures(run: Evidence) -> dict[str, float]:
    """What the time of making samples goes to, by nature: shares that add up to 1; empty where that is not known."""
    use, ledger = run.training_loader, run.report.worker_ledger
    if use is not None and use.workers:
        return {} if ledger is None else dict(ledger.natures)
    found: dict[str, float] = defaultdict(float)
    for entry in run.ledger.entries:
        if entry.phase == "data" and entry.nature != "unknown":
            found[entry.nature] += entry.ms
    total = sum(found.values())
    return {nature: ms / total for nature, ms in found.items()} if total else {}


def main_nature(run: Evidence) -> tuple[str, float] | None:
    """The kind that more of it is than any other, of `_KINDS`, and its share; None where that is not known."""
    natures = work_natures(run)
    shares = {kind: sum(natures.get(nature, 0.0) for nature in of) for kind, of in _KINDS.items()}
    return max(shares.items(), key=lambda item: item[1]) if natures else None


def storage_signs(run: Evidence, use: LoaderUse) -> dict[str, float | str]:
    """Named figures that say it is storage which is waited for; empty where nothing does."""
    signs: dict[str, float | str] = {}
    filesystem, faults = slow_filesystem(run, use), 0.0
    if filesystem is not None:
        signs["filesystem"] = english(filesystem)
    if _read_bytes_per_s(use) >= _READ_BYTES_PER_S:
        signs["worker_read_mb_per_s"] = round(_read_bytes_per_s(use) * 1e-6, 1)
    if use.processes is not None and (faults := use.processes.major_faults_per_s or 0.0) >= _FAULTS_PER_S:
        signs["worker_major_faults_per_s"] = round(faults, 1)
    for name, least in (
        ("nfs_read_bytes_per_s", _READ_BYTES_PER_S),
        ("iowait_share", _IOWAIT_SHARE),
        ("io_pressure_percent", _PRESSURE_PERCENT),
    ):
        series = run.series.get(name)
        if series is not None and series.values and fmean(series.values) >= least:
            signs[name] = round(fmean(series.values), 3)
    return signs


def _read_bytes_per_s(use: LoaderUse) -> float:
    return 0.0 if use.processes is None else use.processes.read_bytes_per_s or 0.0


def slow_filesystem(run: Evidence, use: LoaderUse) -> Message | None:
    """The file system that most of the data is on, if it is a network's, or a rotating disk's that is read from.

    A virtual disk often says that it rotates, whatever is behind it.
    """
    found: Any = run.report.environment.get("data_filesystems") or ()
    most = max(found, key=lambda filesystem: filesystem.get("files", 0), default=None)
    reads = _read_bytes_per_s(use) >= _READ_BYTES_PER_S
    if most is None or not (most.get("is_network") or (reads and most.get("is_rotational"))):
        return None
    kind = message("in104.network" if most.get("is_network") else "in104.rotating_disk")
    return message("in104.filesystem", type=most.get("type"), mount_point=most.get("mount_point"), kind=kind)


def is_storage_bound(run: Evidence, use: LoaderUse) -> bool:
    """Workers that wait for files or sockets; or for what is not known, and either a sign of storage is there, or
    already as many workers as there are CPUs for.
    """
    if not waiting_share(run, use):
        return False
    natures = work_natures(run)
    if sum(natures.get(nature, 0.0) for nature in _KINDS["storage"]) > _WAITS:
        return True
    return bool(storage_signs(run, use)) or use.workers >= spare_cpus(run)


# Late steps are few, and most of the waiting is theirs.
_FEW = 0.25
_MOST = 0.5
# The slowest batch is at least so many times the mean one: less is ordinary spread.
_SLOW = 3.0
# What torch fetches ahead unless told otherwise.
_USUAL_AHEAD = 2


def is_late_batches(run: Evidence) -> bool:
    """Most steps get their batch in time; a few wait far longer than a batch takes, and that is most of the waiting."""
    waiting = run.waiting
    if waiting is None or waiting.late_ms < WORTH * run.step_ms or waiting.late_share > _FEW:
        return False
    # Taking a batch over costs every step something: that is no waiting.
    late_ms = waiting.late_ms - waiting.late_share * waiting.median_ms
    return late_ms >= _MOST * max(0.0, waiting.rest_ms - waiting.median_ms)


def mean_batch_ms(run: Evidence, use: LoaderUse) -> float:
    """What one worker takes for a batch; 0 where it is not known."""
    if use.batch_size is None:
        return batch_ms(run, use) or 0.0
    return (use.sample_ms or 0.0) * use.batch_size


def has_stragglers(run: Evidence, use: LoaderUse) -> bool:
    """Slow samples are the cause, not a queue that was made shorter than usual."""
    mean_ms = mean_batch_ms(run, use)
    if use.cost is None or not mean_ms or use.cost.slowest_batch_ms < _SLOW * mean_ms:
        return False
    return is_late_batches(run) and int(use.settings.get("prefetch_factor") or 2) >= _USUAL_AHEAD


# A line below this part of a sample is not worth naming.
_DEAR = 0.2
# What a line that augments speaks of: what comes out of it differs each time.
_BY_CHANCE = re.compile(r"rand|uniform|choice|shuffl|noise|jitter|augment|\brng|flip|normal\(|crop|transform", re.I)
# So much of a sample's time must be seen in known lines to judge by them.
_SEEN = 0.5


def sample_lines(run: Evidence) -> tuple[LineCost, ...]:
    """The dearest first; `share` is of the time it takes to make a sample, `ms` of one sample.

    From a worker; without workers, what the main process was seen to do while it fetched.
    """
    use = run.training_loader
    if use is None or use.sample_ms is None:
        return ()
    if use.workers:
        return run.worker_lines or run.report.worker_lines
    lines = lines_in(run, "data")
    total_ms = sum(line.ms for line in lines)
    if not total_ms:
        return ()
    parts = [(line, line.ms / total_ms) for line in lines]
    costs = [replace(line, phase="worker", share=part, ms=part * use.sample_ms) for line, part in parts]
    return tuple(sorted(costs, key=lambda line: -line.share))


# From this part of making a sample on, a loop is what takes the time.
_LARGER_PART = 0.5


def find_sample_loop(run: Evidence) -> HotLoop | None:
    """The loop over elements or samples that takes the larger part of making a sample."""
    found = [hot for hot in find_hot_loops(run, sample_lines(run)) if not hot.loop.heavy]
    hottest = max(found, key=lambda hot: hot.share, default=None)
    return hottest if hottest is not None and hottest.share >= _LARGER_PART else None


def loop_garbage_ms(run: Evidence, hot: HotLoop) -> float:
    """What collecting garbage takes of a step, at lines of this loop: without workers the training thread does it."""
    file = hot.lines[0].location.file
    lines = [line for line in lines_in(run, "gc") if line.location.file == file]
    return sum(line.ms for line in lines if is_of_loop(line, hot.loop, run.files[file]))


def same_part(run: Evidence) -> float | None:
    """Part of making a sample that is the same each time, so that a cache spares it; None where no lines tell."""
    texts = [(line.share, text_at(run, line.location)) for line in sample_lines(run)]
    seen = sum(share for share, text in texts if text)
    if seen < _SEEN:
        return None
    return sum(share for share, text in texts if text and not _BY_CHANCE.search(text)) / seen


def dearest_line(run: Evidence) -> dict[str, str]:
    """For a finding's evidence: the line that most of a sample's time goes to; empty where none stands out."""
    lines = sample_lines(run)
    if not lines or lines[0].share < _DEAR:
        return {}
    first = lines[0]
    return {"dearest_line": f"{place_name(first.location)} {first.function}, {first.share:.0%} of a sample"}


def has_missing_workers(run: Evidence) -> bool:
    """More workers are configured than the training loader has, and nothing explains it."""
    use, configured = run.training_loader, run.configured.setting("num_workers")
    if use is None or configured is None or not isinstance(configured.value, int):
        return False
    return configured.value > use.workers and live_workers_if_missing(run, use, configured.value) is not None


def live_workers_if_missing(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    """The live number of workers if the configured one cannot have led to it."""
    if not is_count(wanted, least=0) or use.workers == wanted or "num_workers" not in use.settings:
        return None
    call = run.configured.call
    if call is not None and call.get("num_workers", "literal") == "literal":
        return use.workers  # the call has a number there, or nothing: no config can have a say in it
    assert isinstance(wanted, int)
    ranks = max(ranks_here(run), run.report.run.ranks)
    shared_out = {wanted // ranks, math.ceil(wanted / ranks), wanted * ranks}
    return None if use.workers in shared_out | _caps(run, use, ranks) else use.workers


def _caps(run: Evidence, use: LoaderUse, ranks: int) -> set[int]:
    """Numbers to which a careful script cuts its workers down."""
    machine = run.report.environment.get("cpus")
    processors = {math.floor(run.cpus), machine if isinstance(machine, int) else math.floor(run.cpus)}
    caps = {count - less for count in processors for less in (0, 1, 2)} | {count // 2 for count in processors}
    caps |= {cap // ranks for cap in caps}
    length = use.settings.get("dataset_len")
    # None at all is no caution: that is what a loader has to which nobody says anything.
    return (caps | ({length} if isinstance(length, int) else set())) - {0}


def is_count(value: Value, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
