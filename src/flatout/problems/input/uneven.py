"""Is it a few late batches that the training waits for? Shared by the problems about workers."""

from __future__ import annotations

from flatout.problems.input.feeding import batch_ms
from flatout.problems.prediction import WORTH
from flatout.records.evidence import Evidence, LoaderUse

# Late steps are few, and most of the waiting is theirs.
_FEW = 0.25
_MOST = 0.5
# The slowest batch is at least so many times the mean one: less is ordinary spread.
_SLOW = 3.0
# What torch fetches ahead unless told otherwise.
_USUAL_AHEAD = 2


def late_is_to_blame(run: Evidence) -> bool:
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


def held_up_by_few(run: Evidence, use: LoaderUse) -> bool:
    """Slow samples are the cause, not a queue that was made shorter than usual."""
    mean_ms = mean_batch_ms(run, use)
    if use.cost is None or not mean_ms or use.cost.slowest_batch_ms < _SLOW * mean_ms:
        return False
    return late_is_to_blame(run) and int(use.settings.get("prefetch_factor") or 2) >= _USUAL_AHEAD
