"""The lines that make a sample, whoever runs them, and what they cost. Shared by the problems about loading."""

from __future__ import annotations

import re
from dataclasses import replace

from flatout.problems.hot_lines import named, text_at
from flatout.records.evidence import Evidence
from flatout.records.report import LineCost

# A line below this part of a sample is not worth naming.
_DEAR = 0.2
# What a line that augments speaks of: what comes out of it differs each time.
_BY_CHANCE = re.compile(r"rand|uniform|choice|shuffl|noise|jitter|augment|\brng|flip|normal\(|crop|transform", re.I)
# So much of a sample's time must be seen in known lines to judge by them.
_SEEN = 0.5


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


def same_part(run: Evidence) -> float | None:
    """Part of making a sample that is the same each time, so that a cache spares it; None where no lines tell."""
    texts = [(line.share, text_at(run, line.location)) for line in making_lines(run)]
    seen = sum(share for share, text in texts if text)
    if seen < _SEEN:
        return None
    return sum(share for share, text in texts if text and not _BY_CHANCE.search(text)) / seen


def dearest_line(run: Evidence) -> dict[str, str]:
    """For a finding's evidence: the line that most of a sample's time goes to; empty where none stands out."""
    lines = making_lines(run)
    if not lines or lines[0].share < _DEAR:
        return {}
    first = lines[0]
    return {"dearest_line": f"{named(run, first.location)} {first.function}, {first.share:.0%} of a sample"}
