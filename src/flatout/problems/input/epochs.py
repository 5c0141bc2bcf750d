"""What beginning an epoch costs. Shared by the problems about iterators, workers and loaders that start anew."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.problems.input.feeding import handover_ms
from flatout.problems.prediction import by_removing
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.report import Gain

# An iterator for every second batch or more is not an epoch.
_PER_BATCH = 0.5


@dataclass(frozen=True, slots=True)
class Starting:
    """Milliseconds: of one start beyond a running epoch, and of a mean step."""

    each_ms: float
    per_step_ms: float
    starts: int


def is_per_batch(run: Evidence) -> bool:
    """Is an iterator of the training loader made for nearly every batch?"""
    return run.waiting is not None and run.waiting.first_share >= _PER_BATCH


def starting(run: Evidence, use: LoaderUse) -> Starting | None:
    """What starting this loader's workers costs; None where it starts too seldom to say."""
    if not use.workers or use.epochs < 3 or not run.step_ms:
        return None
    return _of_training(run, use) if use.trains else _of_other(run, use)


def _of_training(run: Evidence, use: LoaderUse) -> Starting | None:
    """The first wait of an epoch, less what it would be with workers alive: one batch has to be made.

    With it the passes that follow, as far as they take longer than others do.
    """
    waiting = run.waiting
    if waiting is None or waiting.first_ms is None or is_per_batch(run):
        return None
    refill_ms = (use.sample_ms or 0.0) * (use.batch_size or 0) + handover_ms(run)
    each_ms = waiting.first_ms - max(waiting.rest_ms, refill_ms) + (waiting.first_slower_ms or 0.0)
    return Starting(each_ms, waiting.first_share * each_ms, use.epochs) if each_ms > 0 else None


def _of_other(run: Evidence, use: LoaderUse) -> Starting | None:
    """A loader that is read between the training's steps, as in evaluations: until its first fetch begins."""
    each_s = max(use.iterator_s or 0.0, (use.cost.startup_s if use.cost is not None else None) or 0.0)
    per_step_ms = min(1e3 * each_s * use.epochs / max(1, run.report.run.steps), run.phase("eval").ms)
    return Starting(1e3 * each_s, per_step_ms, use.epochs) if per_step_ms > 0 else None


def gain_without(run: Evidence, start: Starting, more_ms: float = 0.0) -> Gain | None:
    """The starts go from the mean step, and `more_ms` with them."""
    removed_ms = start.per_step_ms + more_ms
    words = f"{start.starts} starts of {start.each_ms:.3g} ms each go, {removed_ms:.3g} ms of a mean step"
    return by_removing(run, removed_ms, words, floor_ms=run.device_busy_ms or 0.0)
