"""Runs the catalogue over a run: what is wrong, dearest first, each cause once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from flatout.problems.catalogue import Problem, problems
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message, verbatim
from flatout.records.report import Finding

# A gain below this is within what two equal runs differ by.
_LEAST_GAIN = 1.01
# A cause explains a consequence if fixing it brings at least this part of what is promised for that (as logarithms).
_LARGE_PART = 0.25


def find_problems(run: Evidence, trouble: list[Message] | None = None) -> tuple[Finding, ...]:
    """All findings of the run. A detector that fails costs its finding and leaves a line in `trouble`."""
    found: list[Finding] = []
    for problem in problems():
        try:
            found += problem.found_in_run(run)
        except Exception as error:
            if trouble is not None:
                trouble.append(not_judged(problem, error))
    return tuple(rank_findings(drop_consequences(_drop_small_gains(found))))


def not_judged(problem: Problem, error: Exception) -> Message:
    return message("run.problem_not_judged", code=problem.code, error=verbatim(f"{type(error).__name__}: {error}"))


def _drop_small_gains(found: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.predicted_gain is None or finding.predicted_gain.mid >= _LEAST_GAIN]


def drop_consequences(found: list[Finding], known: tuple[Problem, ...] | None = None) -> list[Finding]:
    """Leave out what another finding explains: a cause that is big enough for it, or whose size is not known."""
    causes = {p.code: p.comes_from for p in (problems() if known is None else known)}
    return [
        finding
        for finding in found
        if not any(_explains(other, finding, causes.get(finding.code, ())) for other in found)
    ]


def _explains(cause: Finding, finding: Finding, causes: tuple[str, ...]) -> bool:
    if cause.code not in causes:
        return False
    if cause.predicted_gain is None or finding.predicted_gain is None:
        return True
    return math.log(cause.predicted_gain.mid) >= _LARGE_PART * math.log(finding.predicted_gain.mid)


def rank_findings(found: Iterable[Finding]) -> list[Finding]:
    """What endangers the run first, then by predicted gain; what promises none comes last, the graver first."""

    def weight(finding: Finding) -> tuple[bool, float, int, str]:
        gain = finding.predicted_gain
        is_danger = gain is None and finding.severity == "high"
        return not is_danger, -gain.mid if gain is not None else -1.0, _SEVERITIES.index(finding.severity), finding.code

    return sorted(found, key=weight)


_SEVERITIES = ("high", "medium", "low")
