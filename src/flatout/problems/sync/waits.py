"""Where the training thread waits for the device. Shared by the problems about syncs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from flatout.model.edits import Edits, LessHost, NoSync
from flatout.model.measured import device_work_ms
from flatout.problems.found import FoundInRun
from flatout.problems.hot_lines import ms_at, place_name, text_at
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import SyncSite
from flatout.source.loops import find_text_loops

RESULTS = ("item", "tolist", "bool", "int", "float", "cpu", "to", "copy_", "numpy")
HIDDEN = ("hidden", "nonzero")
EXPLICIT = ("synchronize",)
# Less often than this it is not "every step", and its wait is shared by many.
_EACH_STEP = 0.5
# A sync takes the host this long even if the device has nothing left to do.
_LATENCY_MS = 0.03
_EVALUATING = re.compile(r"eval|valid|test|infer|predict|checkpoint|save", re.I)
_PARAMETER = re.compile(r"param|grad|weight", re.I)


def sites_of(run: Evidence, ops: Sequence[str]) -> list[SyncSite]:
    """The sites of the training step, the most expensive first. What evaluates or saves has phases of its own."""
    mine = [site for site in run.report.syncs if site.op in ops and site.per_step >= _EACH_STEP]
    training = [site for site in mine if not _EVALUATING.search(site.function)]
    return sorted(training, key=lambda site: (-(site.ms or 0.0), -site.per_step))


def timed_ms(run: Evidence, sites: Sequence[SyncSite]) -> float:
    """What these waits take of a step: never more than the phase, which leaves evaluations out."""
    return min(sum(site.ms or 0.0 for site in sites), run.phase("sync").ms)


def hidden_ms(run: Evidence, sites: Sequence[SyncSite]) -> float:
    """What hidden waits take: the time of their lines, but no more than the device computes."""
    lines_ms = sum(ms_at(run, place) for place in {site.location for site in sites if site.ms is None})
    most_ms = (device_work_ms(run) or 0.0) + _LATENCY_MS * sum(site.per_step for site in sites)
    return min(lines_ms, most_ms)


def is_per_parameter(run: Evidence, site: SyncSite) -> bool:
    """Does this line wait about once (or two, three times) for each parameter?"""
    parameters = max((int(optimizer.get("params") or 0) for optimizer in run.live_optimizers), default=0)
    if parameters < 8 or site.per_step < 0.5 * parameters or _EVALUATING.search(site.function):
        return False
    around = _around(run, site)
    if around:
        return bool(_PARAMETER.search(around))
    times = site.per_step / parameters
    return round(times) in (1, 2, 3) and abs(times - round(times)) < 0.1


def _around(run: Evidence, site: SyncSite) -> str:
    """The line and the heads of the loops around it that do not train; empty where the source is not known."""
    text = run.files.get(site.location.file)
    if text is None:
        return text_at(run, site.location)
    lines = text.splitlines()
    heads = [loop.first for loop in find_text_loops(text) if loop.holds(site.location.line) and not loop.trains]
    return " ".join(lines[number - 1] for number in (*heads, site.location.line) if number <= len(lines))


def report_waits(
    run: Evidence, code: str, sites: Sequence[SyncSite], wait_ms: float, evidence: Mapping[str, float | int | str]
) -> Iterator[FoundInRun]:
    """The finding of waits that take `wait_ms` a step, the most expensive site first; none if the GPU is busy."""
    if not sites:
        return
    # Waits that were timed are in `sync`; hidden ones in the phase of their line.
    sync_ms = run.phase("sync").ms
    timed = min(wait_ms, sync_ms)
    count = sum(site.per_step for site in sites)
    lines = ", ".join(f"{place_name(site.location)} {site.op} {site.per_step:.3g}x" for site in sites[:5])
    yield FoundInRun(
        location=sites[0].location,
        evidence={**evidence, "lines": lines},
        cause=message(f"{code}.cause", count=count, wait_ms=wait_ms, step_ms=run.step_ms),
        change=message(f"{code}.change", lines=lines),
        edits=Edits((NoSync(timed, sync_ms), LessHost(wait_ms - timed))),
    )
