"""One rank is slower than the others, which wait for it.

What it is: ranks that train together synchronise in every step, so the slowest sets the pace of all.

Why the GPU idles: the other ranks have finished their part and wait in the all-reduce of the gradients.

How it shows in a run: one rank spends more time by itself (loading, forward, work of its own) and *less* in backward
than the others: it arrives last and so waits least.

The fix: depends on where the slow rank takes longer: give it the same loader, workers and disk; take work that only
one rank does out of the step; check that GPU's clock and other jobs on its host.

What to expect: the step is shorter by what that rank takes longer than the others.

When it is fine: each rank is slow in turn because samples differ in size; then sort or bucket by size instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import AtLeast, Edits, LessStep
from flatout.problems.found import FoundInRun, processors_floor_ms
from flatout.problems.rank.ranks import Times, all_but, delays_ms, name_of, rank_times, typical_ms
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import Location

CODE = "RA901"
COMES_FROM = ("RA902",)
_WORTH = 0.05
# Of its delay, this much must show as waiting of the others: else they do not wait for it.
_WAITED_FOR = 0.5
_ALL_ALONG = 0.6
_ALL_AT_WORK = 1.08
# What one rank does for all is a matter of how often, not of a slow rank.
_CADENCE = ("eval", "checkpoint", "logging")


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    ranks = rank_times(run)
    if not ranks:
        return
    late = max(ranks, key=lambda rank: rank.own_ms)
    rest = all_but(ranks, late)
    delay_ms = late.own_ms - typical_ms([rank.own_ms for rank in rest])
    waited_ms = typical_ms([rank.waiting_ms for rank in rest]) - late.waiting_ms
    if delay_ms < _WORTH * run.step_ms or waited_ms < _WAITED_FOR * delay_ms:
        return
    # A slow rank is slow all along; noise, or a busy neighbour, is slow for a while.
    if not run.on_gpu and any(part_ms < _ALL_ALONG * delay_ms for part_ms in delays_ms(run, late)):
        return
    phase, more_ms = _slowest_phase(late, rest)
    # Ranks that no longer wait compute at the same time: processors that do it then share caches and memory.
    together_ms = 0.0 if run.on_gpu else _ALL_AT_WORK * processors_floor_ms(run)
    if phase in _CADENCE:
        return
    yield FoundInRun(
        location=_location(run, phase, late, rest),
        evidence={
            "rank": late.rank.rank if late.rank.rank is not None else -1,
            "host": late.rank.host or "",
            "delay_ms_per_step": round(delay_ms, 2),
            "phase": phase,
            "backward_ms": round(late.waiting_ms, 2),
            "backward_ms_others": round(typical_ms([rank.waiting_ms for rank in rest]), 2),
        },
        cause=message("ra901.cause", rank=name_of(late.rank), delay_ms=delay_ms, phase_ms=more_ms, phase=phase),
        change=_change(phase, late),
        edits=Edits((LessStep(delay_ms), AtLeast(together_ms))),
    )


def _change(phase: str, late: Times) -> Message:
    rank = name_of(late.rank)
    if phase in ("data", "starved"):
        return message("ra901.change_loader", rank=rank)
    return (
        message("ra901.change_other", rank=rank)
        if phase == "other"
        else message("ra901.change", rank=rank, phase=phase)
    )


def _slowest_phase(late: Times, rest: list[Times]) -> tuple[str, float]:
    """The phase in which it loses most, and how much."""
    more = {
        name: ms - typical_ms([rank.phase_ms.get(name, 0.0) for rank in rest])
        for name, ms in late.phase_ms.items()
        if name not in ("backward", "sync")
    }
    worst = max(more, key=lambda name: more[name])
    return worst, more[worst]


def _location(run: Evidence, phase: str, late: Times, rest: list[Times]) -> Location | None:
    """The loader, or the most expensive line of a phase in which the others spend next to nothing."""
    if phase in ("data", "starved"):
        use = run.training_loader
        return use.made_at if use is not None else None
    usual_ms = typical_ms([rank.phase_ms.get(phase, 0.0) for rank in rest])
    if usual_ms > 0.3 * late.phase_ms.get(phase, 0.0):
        return None
    return next((line.location for line in run.all_lines if line.phase == phase), None)
