"""What a run shows about its loading beyond the time it takes. Shared by the problems about loading.

Do the workers compute or wait for storage? Is it a few late batches that the training waits for? Which lines make a
sample? Does the loader have the workers that were configured?
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import fmean
from typing import Any

from flatout.problems.hot_lines import lines_in, place_name, text_at
from flatout.problems.input.throughput import BUSY, batch_ms, busy_share, computing_share, ranks_here, spare_cpus
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence, LoaderUse, Value
from flatout.records.message import Message, message
from flatout.records.report import LineCost
from flatout.words import english

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
    waits = 1.0 - computing_share(run, use)
    return waits if waits > _WAITS else 0.0


def storage_signs(run: Evidence, use: LoaderUse) -> dict[str, float | str]:
    """Named figures that say it is storage which is waited for; empty where nothing does."""
    signs: dict[str, float | str] = {}
    processes = use.processes
    filesystem = slow_filesystem(run, use)
    if filesystem is not None:
        signs["filesystem"] = english(filesystem)
    if processes is not None and (processes.read_bytes_per_s or 0.0) >= _READ_BYTES_PER_S:
        signs["worker_read_mb_per_s"] = round((processes.read_bytes_per_s or 0.0) * 1e-6, 1)
    if processes is not None and (processes.major_faults_per_s or 0.0) >= _FAULTS_PER_S:
        signs["worker_major_faults_per_s"] = round(processes.major_faults_per_s or 0.0, 1)
    for name, least in (
        ("nfs_read_bytes_per_s", _READ_BYTES_PER_S),
        ("iowait_share", _IOWAIT_SHARE),
        ("io_pressure_percent", _PRESSURE_PERCENT),
    ):
        series = run.series.get(name)
        if series is not None and series.values and fmean(series.values) >= least:
            signs[name] = round(fmean(series.values), 3)
    return signs


def slow_filesystem(run: Evidence, use: LoaderUse) -> Message | None:
    """The file system that most of the data is on, if it is a network's, or a rotating disk's that is read from.

    A virtual disk often says that it rotates, whatever is behind it.
    """
    found: Any = run.report.environment.get("data_filesystems") or ()
    most = max(found, key=lambda filesystem: filesystem.get("files", 0), default=None)
    reads = use.processes is not None and (use.processes.read_bytes_per_s or 0.0) >= _READ_BYTES_PER_S
    if most is None or not (most.get("is_network") or (reads and most.get("is_rotational"))):
        return None
    kind = message("in104.network" if most.get("is_network") else "in104.rotating_disk")
    return message("in104.filesystem", type=most.get("type"), mount_point=most.get("mount_point"), kind=kind)


def is_storage_bound(run: Evidence, use: LoaderUse) -> bool:
    """Waiting workers, and either a sign of storage or already as many workers as there are CPUs for."""
    if not waiting_share(run, use):
        return False
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
