"""Runs the catalogue over a run: what is wrong, dearest first, each cause once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from flatout.diagnose.steady import is_told
from flatout.problems.catalogue import Problem, problems
from flatout.problems.found import KEEPS_FROM_HEALTH, WORTH_GENERAL
from flatout.problems.hot_lines import LOOP
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message, verbatim
from flatout.records.report import Finding, Location, Verdict
from flatout.source.syntax.module import parse_text

# Lines of one statement and its neighbours.
_NEAR_LINES = 2
# Families of problems that explain a wait for batches.
_OF_LOADERS = ("input", "config", "memory", "rank")
# Families of problems that explain the other bounds.
_OF_BOUND = {
    "transfer": ("transfer", "input", "config"),
    "sync": ("sync", "host", "transfer"),
    "host": ("host", "sync", "compute", "config", "transfer", "input", "cadence"),
    "cadence": ("cadence",),
}
# A gain below this is within what two equal runs differ by.
_LEAST_GAIN = 1.01
# Gains that differ by less cannot be told apart: two equal runs differ by as much.
_ALIKE = 1.05
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
    gaining = [
        finding for finding in found if finding.predicted_gain is None or finding.predicted_gain.mid >= _LEAST_GAIN
    ]
    return tuple(rank_findings(drop_covered(run, drop_consequences(run, gaining))))


def withhold_unsure(
    found: Iterable[Finding], step_error: float | None
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Findings to show, and those whose predicted gain is no larger than what the step time is uncertain by.

    `step_error` is half of the interval of the mean step; None where there are too few steps for one.
    """
    shown: list[Finding] = []
    withheld: list[Finding] = []
    for finding in found:
        gain = finding.predicted_gain
        (shown if gain is None or is_told(gain.mid, step_error) else withheld).append(finding)
    return tuple(shown), tuple(withheld)


def name_bound(found: tuple[Finding, ...], withheld: Sequence[Finding], verdict: Verdict) -> tuple[Finding, ...]:
    """Say what a bound verdict comes from: where every finding is withheld, the largest is shown without its gain."""
    if found or not withheld or verdict.healthy or verdict.bound == "compute":
        return found
    return (replace(withheld[0], predicted_gain=None),)


def all_findings(run: Evidence) -> tuple[Finding, ...]:
    """Those that are shown and those that are withheld, with their gains."""
    withheld = {(finding.code, finding.location) for finding in run.withheld}
    shown = [finding for finding in run.report.findings if (finding.code, finding.location) not in withheld]
    return tuple(rank_findings([*shown, *run.withheld]))


def not_judged(problem: Problem, error: Exception) -> Message:
    return message("run.problem_not_judged", code=problem.code, error=verbatim(f"{type(error).__name__}: {error}"))


def drop_consequences(run: Evidence, found: list[Finding]) -> list[Finding]:
    """Leave out what another finding explains: a cause that is big enough for it, or whose size is not known."""
    by_code = {problem.code: problem for problem in problems()}
    return [
        finding
        for finding in found
        if not any(_explains(run, other, finding, by_code.get(finding.code)) for other in found)
    ]


def drop_covered(run: Evidence, found: list[Finding]) -> list[Finding]:
    """Leave out general findings about time that a finding with a known cause is about, unless it is a small part."""
    known = [finding for finding in found if not _is_general(finding)]
    told = [
        finding
        for finding in found
        if not _is_general(finding)
        or not (_may_be_others_doing(run, finding) or any(_covers(run, other, finding) for other in known))
    ]
    # What is left over of a bound is told only where nothing else is told of it.
    return [
        finding
        for finding in told
        if "bound" not in finding.evidence or not any(_covers(run, other, finding) for other in told)
    ]


def _is_general(finding: Finding) -> bool:
    """Is it of a problem that tells where time goes, without the cause?"""
    return finding.code in _codes_that("is_general")


@cache
def _codes_that(trait: Literal["is_general", "hides"]) -> frozenset[str]:
    return frozenset(problem.code for problem in problems() if getattr(problem, trait))


def _may_be_others_doing(run: Evidence, general: Finding) -> bool:
    """Is it a wait for batches no longer than what other processes took of the run's time?"""
    late, gain = run.late_by_others, general.predicted_gain
    if late is None or general.family != "input":
        return False
    return gain is None or 1 - 1 / gain.mid < late + WORTH_GENERAL


def _covers(run: Evidence, known: Finding, general: Finding) -> bool:
    if known is general:
        return False
    bound = general.evidence.get("bound")
    is_there = bound is None and _is_same_place(run, known.location, general.location)
    if not is_there and known.family not in _families_of(general):
        return False
    if known.predicted_gain is None or general.predicted_gain is None:
        # Where the model promises nothing there are no sizes to compare: a cause that is known comes first.
        return general.predicted_gain is None
    if general.family == "input" and _only_hides(known):
        # What it costs is named beside it as long as a good part of it still shows.
        left = _saved_share(general.predicted_gain.mid) - _saved_share(known.predicted_gain.mid)
        return left < KEEPS_FROM_HEALTH
    return math.log(known.predicted_gain.mid) >= _LARGE_PART * math.log(general.predicted_gain.mid)


def _only_hides(finding: Finding) -> bool:
    """More workers make the same samples at the same cost, beside the training: nothing of it is removed."""
    return finding.remedy is not None and finding.code in _codes_that("hides")


def _is_same_place(run: Evidence, known: Location | None, general: Location | None) -> bool:
    """In the same function, near it in the function that holds the training loop, or by a call that leads there."""
    if known is None or general is None:
        return False
    if _leads_to(run, known, general):
        return True
    if known.file != general.file:
        return False
    if abs(known.line - general.line) <= _NEAR_LINES:
        return True
    function = _function_at(run, general)
    return function is not None and function == _function_at(run, known) and not _holds_loop(run, function)


def _leads_to(run: Evidence, call: Location, place: Location) -> bool:
    """Does most of the time at this place come by this call?"""
    there = [path for path in run.call_paths if path.lines and path.lines[-1] == place]
    return 2 * sum(path.ms for path in there if call in path.lines[:-1]) > sum(path.ms for path in there)


def _function_at(run: Evidence, location: Location) -> tuple[str, int, int] | None:
    """File, first and last line of the innermost function around a line."""
    text = run.files.get(location.file)
    if not text:
        return None
    spans = [
        (definition.lineno, definition.end_lineno or definition.lineno)
        for function in parse_text(text).functions
        if (definition := function.definition) is not None
    ]
    around = [span for span in spans if span[0] <= location.line <= span[1]]
    return (location.file, *max(around)) if around else None


def _holds_loop(run: Evidence, function: tuple[str, int, int]) -> bool:
    file, first, last = function
    passes = [entry.location for entry in run.ledger.entries if entry.phase in ("backward", "optimizer")]
    return any(place.file == file and first <= place.line <= last for place in passes)


def _explains(run: Evidence, cause: Finding, finding: Finding, problem: Problem | None) -> bool:
    if problem is None or cause.code not in problem.comes_from + problem.comes_from_here:
        return False
    if cause.code in problem.comes_from_here and not _is_same_place(run, cause.location, finding.location):
        return False
    if cause.predicted_gain is None or finding.predicted_gain is None:
        return True
    return math.log(cause.predicted_gain.mid) >= _LARGE_PART * math.log(finding.predicted_gain.mid)


def rank_findings(found: Iterable[Finding]) -> list[Finding]:
    """What endangers the run first, then by predicted gain; what promises none comes last, the graver first.

    The gain of a general finding is the most there could be: it comes behind a known cause of the same time, if that
    takes a large part of it. Of two that gain alike, the one that removes the cost comes before the one that hides it,
    and then the one that gains it more surely.
    """
    listed = list(found)
    of_loaders = [finding for finding in listed if finding.family in _OF_LOADERS and not _is_general(finding)]

    def gain_of(finding: Finding) -> float:
        gain = finding.predicted_gain
        if gain is None:
            return 1.0
        if _only_hides(finding):
            removers = [other for other in of_loaders if not _only_hides(other)]
            best = max((other.predicted_gain.mid for other in removers if other.predicted_gain), default=1.0)
            return min(gain.mid, best - _BEHIND) if best * _ALIKE >= gain.mid else gain.mid
        families = _families_of(finding) if _is_general(finding) else ()
        known = [
            other.predicted_gain.mid
            for other in listed
            if not _is_general(other)
            and other.family in families
            and other.predicted_gain is not None
            # Of a loop it is known what removes it: that comes before what hides it.
            and not (LOOP in finding.evidence and _only_hides(other))
        ]
        best = max(known, default=1.0)
        takes = _saved_share(best) >= _LARGE_PART * _saved_share(gain.mid)
        return min(gain.mid, best - _BEHIND) if takes and best >= _NOTED else gain.mid

    def weight(finding: Finding) -> tuple[bool, float, float, int, str]:
        is_danger = finding.predicted_gain is None and finding.severity == "high"
        least = finding.predicted_gain.low if finding.predicted_gain is not None else 1.0
        return not is_danger, -gain_of(finding), -least, _SEVERITIES.index(finding.severity), finding.code

    return sorted(listed, key=weight)


def _saved_share(gain: float) -> float:
    """Of the step's time."""
    return 1.0 - 1.0 / gain


def _families_of(general: Finding) -> tuple[str, ...]:
    """Families of problems that explain the time of a general finding."""
    bound = general.evidence.get("bound")
    return _OF_LOADERS if general.family == "input" else _OF_BOUND.get(str(bound), ())


# A known cause that gains this much is noted before the rest; and how far the rest is put behind it.
_NOTED, _BEHIND = 1.05, 1e-6
_SEVERITIES = ("high", "medium", "low")
