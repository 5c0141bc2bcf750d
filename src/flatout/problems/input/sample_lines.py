"""The lines that make a sample, whoever runs them, and what they cost. Shared by the problems about loading."""

from __future__ import annotations

from dataclasses import replace

from flatout.problems.hot_lines import named
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost

# A line below this part of a sample is not worth naming.
_DEAR = 0.2


def making_lines(run: Evidence) -> tuple[LineCost, ...]:
    """The dearest first; `share` is of the time it takes to make a sample, `ms` of one sample.

    From a worker; without workers, what the main process was seen to do while it fetched.
    """
    use = run.training_loader
    if use is None or use.sample_ms is None:
        return ()
    if use.workers:
        return run.worker_lines or run.report.worker_lines
    lines = [line for line in run.all_lines or run.report.lines if line.phase == "data"]
    total_ms = sum(line.ms for line in lines)
    if not total_ms:
        return ()
    parts = [(line, line.ms / total_ms) for line in lines]
    costs = [replace(line, phase="worker", share=part, ms=part * use.sample_ms) for line, part in parts]
    return tuple(sorted(costs, key=lambda line: -line.share))


def dearest_line(run: Evidence) -> dict[str, str]:
    """For a finding's evidence: the line that most of a sample's time goes to; empty where none stands out."""
    lines = making_lines(run)
    if not lines or lines[0].share < _DEAR:
        return {}
    first = lines[0]
    return {"dearest_line": f"{named(run, first.location)} {first.function}, {first.share:.0%} of a sample"}
