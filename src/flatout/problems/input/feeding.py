"""How many workers feed a training, and what it then gains. Shared by the problems about workers."""

from __future__ import annotations

import math

from flatout.problems.prediction import by_step, processors_floor_ms, without_waiting_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.report import Gain

# Workers slow each other and the main process down a little: what a cautious reckoning adds to a worker's time.
_CONTENTION = 1.3
# Handing a batch over costs the main process about this much, whoever made it.
_HANDOVER_SHARE = 0.02


def batch_ms(run: Evidence, use: LoaderUse) -> float | None:
    """Milliseconds of one process for the samples of a step."""
    if use.sample_ms is None or run.samples_per_step is None:
        return None
    return use.sample_ms * run.samples_per_step


def workers_for(run: Evidence, use: LoaderUse) -> int:
    """The workers that feed a step which waits for nothing, as far as there are processors; 0 if none is to be had."""
    work_ms = batch_ms(run, use)
    target_ms = without_waiting_ms(run)
    spare = math.floor(run.cpus) - max(1, run.report.run.ranks)
    if work_ms is None or spare < 1:
        return 0
    needed = math.ceil(_CONTENTION * work_ms / max(target_ms, 1e-6))
    return max(1, min(needed, spare))


def gain_with(run: Evidence, use: LoaderUse, workers: int) -> Gain | None:
    """What so many workers gain over the run as it was."""
    work_ms = batch_ms(run, use)
    if work_ms is None:
        return None
    target_ms = without_waiting_ms(run)
    least_ms = processors_floor_ms(run)
    handover_ms = _HANDOVER_SHARE * run.step_ms
    ideal_ms = max(target_ms, work_ms / workers, least_ms)
    expected_ms = max(target_ms + handover_ms, work_ms / workers, least_ms)
    cautious_ms = max(target_ms + 2 * handover_ms, _CONTENTION * work_ms / workers, 1.15 * least_ms)
    words = f"a step is the slowest of: computing {target_ms:.3g} ms, loading {work_ms:.3g} ms over {workers} workers"
    return by_step(run, cautious_ms, expected_ms, ideal_ms, words + f", {run.cpus:g} processors")
