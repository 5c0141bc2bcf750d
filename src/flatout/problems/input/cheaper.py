"""What is gained when samples get cheaper to make. Shared by the problems about how they are made."""

from __future__ import annotations

from flatout.problems.input.feeding import epoch_start_ms, usual_handover_ms
from flatout.problems.prediction import by_step, without_waiting_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.report import Gain


def gain_by_cheaper(
    run: Evidence, use: LoaderUse, left_ms: tuple[float, float, float], method: str, keeps_workers: bool = False
) -> Gain | None:
    """`left_ms` is what one process then takes for the samples of a step: at worst, expected, at best.

    `keeps_workers`: epochs no longer begin with a start of workers.

    Processors that making samples no longer takes are the training's own again, so their old work is no bound.
    """
    if not use.workers:
        exposed = min(1.0, run.starved_ms / max(run.phase("data").ms, 1e-9))
        spared = [exposed * max(0.0, run.phase("data").ms - one) for one in left_ms]
        worst, expected, best = (run.step_ms - one for one in spared)
        return by_step(run, worst, expected, best, method)
    fed_ms = without_waiting_ms(run) + (0.0 if run.on_gpu else usual_handover_ms(run))
    starts_ms = 0.0 if keeps_workers else epoch_start_ms(run)
    worst, expected, best = (max(fed_ms, one / use.workers) + starts_ms for one in left_ms)
    return by_step(run, worst, expected, best, method)
