"""A part of the step that could be saved, and that no other problem explains.

What it is: the verdict names what bounds the step, copies, waits for the device, pauses or the host, and none of the
problems that are known for it was found. The time was measured; its cause was not recognised.

Why the GPU idles: while this part of the step lasts, the device has nothing to compute.

How it shows in a run: the share of the step that the verdict names, and the lines of your code that were seen in it.

The fix: start from the line. For copies: fewer and larger ones, from pinned memory, not blocking. For waits: read
results every hundred steps. For pauses: less often, on less data. For the host: less Python in each step.

What to expect: at most all of this part.

When it is fine: the time is needed where it is, and you know what it is spent on.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.model.edits import Edit, Edits, LessHost, LessPause, LessStep, NoSync
from flatout.problems.found import KEEPS_FROM_HEALTH, FoundInRun
from flatout.problems.hot_lines import lines_in, place_name
from flatout.records.evidence import Evidence
from flatout.records.ledger import LedgerEntry, Part
from flatout.records.message import message
from flatout.records.report import Bound, LineCost

CODE = "HO412"
GENERAL = True
_HOST: tuple[Part, ...] = ("python", "native", "waiting", "gc", "not measured")
# Phases in which the lines of a cause are seen. A wait for batches has a problem of its own (IN118).
_PHASES: dict[Bound, tuple[str, ...]] = {
    "transfer": ("h2d",),
    "sync": ("sync",),
    "host": ("forward", "other", "gc", "optimizer"),
    "cadence": ("eval", "checkpoint", "logging"),
}


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    grounds = run.report.verdict.grounds
    for cost in grounds.costs if grounds is not None else ():
        if cost.cause not in _PHASES or cost.share < KEEPS_FROM_HEALTH or run.report.verdict.healthy:
            continue
        ms = cost.share * run.step_ms
        worst = _find_worst(run, cost.cause)
        yield FoundInRun(
            location=None if worst is None else worst.location,
            evidence={"bound": cost.cause, "share": round(cost.share, 3), "ms_per_step": round(ms, 2)},
            cause=message("ho412.cause", what=message(f"ho412.{cost.cause}"), ms=ms, step_ms=run.step_ms)
            if worst is None
            else message(
                "ho412.cause_line",
                what=message(f"ho412.{cost.cause}"),
                ms=ms,
                step_ms=run.step_ms,
                line=place_name(worst.location),
            ),
            change=message(f"ho412.change_{cost.cause}"),
            edits=Edits(_edits(run, cost.cause, ms), is_most=True),
        )


def _find_worst(run: Evidence, cause: Bound) -> LedgerEntry | LineCost | None:
    """The line that takes most of it; lines of the model are none of the host's."""
    if cause == "host" and run.ledger.entries:
        own = [entry for entry in run.ledger.entries if entry.part in _HOST]
        return max(own, key=lambda entry: entry.ms, default=None)
    return max(lines_in(run, *_PHASES[cause]), key=lambda line: line.ms, default=None)


def _edits(run: Evidence, cause: Bound, ms: float) -> tuple[Edit, ...]:
    if cause == "cadence":
        return tuple(LessPause(phase, run.phase(phase).ms) for phase in _PHASES[cause])
    if cause == "sync":
        return (NoSync(ms, run.phase("sync").ms),)
    return (LessStep(ms),) if cause == "transfer" else (LessHost(ms),)
