"""Did the configured workers arrive? Shared by what says so and by what would say the same in other words."""

from __future__ import annotations

import math

from flatout.problems.input.feeding import ranks_here
from flatout.records.configured import Value
from flatout.records.evidence import Evidence, LoaderUse


def workers_never_arrived(run: Evidence) -> bool:
    """More workers are configured than the training loader has, and nothing explains it."""
    use, configured = run.training_loader, run.configured.setting("num_workers")
    if use is None or configured is None or not isinstance(configured.value, int):
        return False
    return configured.value > use.workers and missing_workers(run, use, configured.value) is not None


def missing_workers(run: Evidence, use: LoaderUse, wanted: Value) -> Value | None:
    """The live number of workers if the configured one cannot have led to it."""
    if not is_count(wanted, least=0) or use.workers == wanted or "num_workers" not in use.settings:
        return None
    if _is_written(run, "num_workers"):
        return use.workers
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


def _is_written(run: Evidence, keyword: str) -> bool:
    """The call that makes the loader has a number there, or nothing: no config can have a say in it."""
    call = run.configured.call
    return call is not None and call.get(keyword, "literal") == "literal"
