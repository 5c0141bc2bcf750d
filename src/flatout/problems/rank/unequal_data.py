"""Ranks get unequal shares of the data.

What it is: one rank has larger batches, or more of them, than the others.

Why the GPU idles: with larger batches the others wait in every step; with more of them, the others have finished their
epoch and wait at its end (or hang).

How it shows in a run: samples a step, or the number of steps, differ between the ranks.

The fix: `DistributedSampler(dataset, drop_last=True)` with the same `batch_size` on every rank; for an
IterableDataset split by rank *and* worker, into parts of equal length.

What to expect: the work of the busiest rank shrinks to the mean of all.

When it is fine: GPUs of different speed that were given work to match.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from flatout.model.edits import Edits, LessStep
from flatout.problems.found import FoundInRun
from flatout.problems.rank.ranks import Times, name_of, rank_times, samples_per_step
from flatout.records.evidence import Evidence
from flatout.records.message import message

CODE = "RA902"
_WORTH = 0.05


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    ranks = run.report.ranks
    shares = [(taken * rank.steps, rank) for rank in ranks if (taken := samples_per_step(rank)) is not None]
    if len(ranks) < 2 or len(shares) < len(ranks) or not all(rank.ended for rank in ranks) or not rank_times(run):
        return
    (most, busiest), (least, idlest) = max(shares, key=itemgetter(0)), min(shares, key=itemgetter(0))
    mean = sum(work for work, _ in shares) / len(shares)
    if most < (1 + _WORTH) * mean:
        return
    use = run.training_loader
    yield FoundInRun(
        location=use.made_at if use is not None else None,
        evidence={
            "samples_most": round(most),
            "samples_least": round(least),
            "samples_mean": round(mean),
            "steps_most": max(rank.steps for rank in ranks),
            "steps_least": min(rank.steps for rank in ranks),
        },
        cause=message("ra902.cause", busiest=name_of(busiest), most=most, idlest=name_of(idlest), least=least),
        change=message("ra902.change"),
        edits=_edits(run),
    )


def _edits(run: Evidence) -> Edits:
    """Equal batches spare the busiest rank what it does longer; equal numbers of steps end the epoch at their mean."""
    ranks = rank_times(run)
    steps = [rank.rank.steps for rank in ranks]
    per_step = [samples_per_step(rank.rank) or 0.0 for rank in ranks]
    fewer = sum(steps) / len(steps) / max(steps)
    busiest = ranks[per_step.index(max(per_step))]
    spared_ms = _more_ms(busiest, ranks) if max(per_step) > (1 + _WORTH) * sum(per_step) / len(per_step) else 0.0
    # No more can be spared than the samples that go elsewhere.
    spared_ms = min(spared_ms, run.step_ms * (1 - sum(per_step) / len(per_step) / max(per_step)))
    less_ms = run.step_ms - fewer * (run.step_ms - spared_ms)
    return Edits((LessStep(less_ms),), worst=(LessStep(0.5 * less_ms),))


def _more_ms(busiest: Times, ranks: list[Times]) -> float:
    """What it takes longer than the mean on its own, and at least as much for its backward as for its forward."""

    def more(name: str) -> float:
        return busiest.phase_ms.get(name, 0.0) - sum(rank.phase_ms.get(name, 0.0) for rank in ranks) / len(ranks)

    own_ms = busiest.own_ms - sum(rank.own_ms for rank in ranks) / len(ranks)
    return max(0.0, own_ms + max(0.0, more("forward")))
