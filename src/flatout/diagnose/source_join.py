"""Brings what the source says into the picture of a run: where a value is written, and what the run cannot tell.

Only files that the run executed are read, and those of the same project that they import: little enough to wait for
at the end of a run. Nothing here may cost the verdict: where the source is gone or was changed, there is none.
"""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from flatout.diagnose.findings import drop_consequences, rank_findings
from flatout.diagnose.settings import script_of
from flatout.diagnose.source_check import check_project, select_problems
from flatout.diagnose.source_costs import CostJudge
from flatout.diagnose.summary import examine_run
from flatout.problems.catalogue import problems
from flatout.records.evidence import Evidence
from flatout.records.message import Message, message
from flatout.records.report import Finding, Location, RelatedLine, RunReport, SourceSide, Unmeasured
from flatout.records.source import SYNTAX, UNUSED, SourceFinding
from flatout.source.project.loading import load
from flatout.source.project.project import Project
from flatout.source.syntax.module import Module
from flatout.store.run import StoredRun

# Who asks for a stored run has time for its source, though not for ever.
PATIENT_S = 5.0
# A hundredth of a second each, on a slow machine.
_MOST_FILES, _MOST_BYTES = 24, 400_000
_GRACE_S = 1.0
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python3[^/\\]*)[/\\]")
# Messages beside the place where a value takes effect, and beside a call on the way from the training loop.
_REACHES = ("related.reaches_loader", "related.reaches_switch", "related.reaches_tokenizer")
_CALLS = "related.calls"
# Of the step: what a line has to take before the source alone makes a finding of it.
_WORTH = 0.05


def examine_run_and_source(run: StoredRun, limit_s: float = PATIENT_S) -> Evidence:
    """Everything that a run and, within so many seconds, its source say."""
    return join_source(run, examine_run(run), limit_s)


def join_source(run: StoredRun, evidence: Evidence, limit_s: float | None = None) -> Evidence:
    """The evidence with a report that both sides have a part in, if that can be had within so many seconds."""
    if not evidence.step_ms:
        return evidence
    reports: list[RunReport] = []

    def work() -> None:
        try:
            reports.append(_join(run, evidence))
        except Exception:
            pass  # a page without the source's part is better than none

    # Syntax trees are many objects that all stay for as long as this takes.
    was_on = gc.isenabled()
    gc.disable()
    try:
        if limit_s is None:
            work()
        else:
            # Whoever is too late is not waited for, and ends with the process.
            thread = threading.Thread(target=work, name="flatout-source", daemon=True)
            thread.start()
            thread.join(limit_s)
    finally:
        if was_on:
            gc.enable()
    return replace(evidence, report=reports[0]) if reports else evidence


def _join(run: StoredRun, evidence: Evidence) -> RunReport:
    report = evidence.report
    files = own_files(run, evidence)
    if not files:
        return report
    project, found = _check_files(tuple((file, *_mark(file)) for file in files))
    judge = CostJudge(project, run, evidence)
    judged = [judge.with_cost(finding, found) for finding in found]
    findings = tuple(_explain_finding(finding, judged, judge, run) for finding in report.findings)
    more = [_as_finding(finding, evidence) for finding in _unreported(judged, report, judge)]
    if more:
        findings = tuple(rank_findings(drop_consequences(evidence, [*findings, *more])))
    return replace(report, findings=findings, source=_side(judged, report.findings, project, run))


@lru_cache(maxsize=1)  # a run that goes on is judged again and again, and its source stays as it was
def _check_files(files: tuple[tuple[Path, int, int], ...]) -> tuple[Project, tuple[SourceFinding, ...]]:
    """These files and what stands in them; they are told apart by what changes when one is written."""
    project = load([file for file, *_ in files])
    found = check_project(project, select_problems((), ())).findings
    return project, tuple(finding for finding in found if finding.code not in (SYNTAX, UNUSED))


def _mark(file: Path) -> tuple[int, int]:
    facts = file.stat()
    return facts.st_mtime_ns, facts.st_size


# Which files.


def own_files(run: StoredRun, evidence: Evidence) -> list[Path]:
    """The user's own files that the run executed, or may have through their imports, and that are as they were."""
    begun_s = run.source_until_unix_s + _GRACE_S
    found: dict[Path, int] = {}
    waiting = [Path(name) for name in _files_seen(run, evidence) if not _INSTALLED.search(name)]
    roots = list(dict.fromkeys(path.parent for path in waiting))
    while waiting:
        path = waiting.pop(0)
        if path in found or path.suffix != ".py" or len(found) >= _MOST_FILES:
            continue
        try:
            facts = path.stat()
        except OSError:
            continue
        if facts.st_mtime > begun_s or sum(found.values()) + facts.st_size > _MOST_BYTES:
            continue
        found[path] = facts.st_size
        waiting += _imported_files(path, roots)
    return list(found)


def _files_seen(run: StoredRun, evidence: Evidence) -> list[str]:
    places = [line.location for line in (*evidence.all_lines, *evidence.worker_lines)]
    places += evidence.report.sites
    places += [use.made_at for use in evidence.loaders if use.made_at is not None]
    script = script_of(run.manifest.argv)
    named = [] if script is None else [os.path.join(run.manifest.cwd, script)]
    return list(dict.fromkeys(os.path.normpath(name) for name in (*named, *(place.file for place in places))))


def _imported_files(path: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Files of the project that this one imports: looked for beside it, and beside what the run executed."""
    for name in _imported_names(path, *_mark(path)):
        parts = [part for part in name.split(".") if part]
        for root in (path.parent, *roots) if parts else ():
            for file in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
                if file.is_file():
                    yield file


@lru_cache(maxsize=_MOST_FILES)
def _imported_names(path: Path, *mark: int) -> tuple[str, ...]:
    """What a file imports, as it is since `mark`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return tuple(dict.fromkeys(Module(str(path), path.stem, text).imported_names))


# What they add.


def _explain_finding(finding: Finding, judged: Sequence[SourceFinding], judge: CostJudge, run: StoredRun) -> Finding:
    """A finding of the run with where its cause is written, and how it can be fixed."""
    same = [
        source_finding
        for source_finding in judged
        if source_finding.code == finding.code and judge.same(source_finding, judged) is finding
    ]
    if not same:
        return finding
    if finding.location is None:
        # Where the value takes effect, if it is written at another place.
        effects = (other.place for other in same[0].related if other.words.id in _REACHES)
        finding = replace(finding, location=next((Location(place.file, place.line) for place in effects), None))
    here = None if finding.location is None else judge.standing.now(finding.location)
    candidate = next((each for each in same if here in judge.standing.lines_of(each.place)), same[0])
    is_here = here is None or here in judge.standing.lines_of(candidate.place)
    fix = None
    if candidate.fix is not None:
        unsafe = "" if candidate.fix.is_safe else " --unsafe-fixes"
        # Whatever makes it a finding has to be looked at together.
        path = _common_path([candidate.place.file, *(other.place.file for other in candidate.related)], run)
        fix = f"flatout check --fix{unsafe} --select {candidate.code} {path}"
    if is_here:
        related = finding.related or _way_there(candidate)
        return replace(finding, location=finding.location or _location(candidate), related=related, fix=fix)
    given = {word.partition("=")[0].replace("_", "-") for word in run.manifest.argv if word.startswith("--")}
    if any(name.replace("_", "-") in given for name in _options(candidate.cause)):
        return finding  # the command line said so, whatever the default is
    return replace(finding, related=(RelatedLine(_location(candidate), _setting(candidate.cause)),), fix=fix)


def _setting(cause: Message) -> Message:
    """Which setting a cause is about, and what it is, where it says that apart from its effect."""
    setting = cause.args.get("setting")
    return setting if isinstance(setting, Message) else cause


def _options(fact: object) -> Iterator[str]:
    """The options of a command line that a message names."""
    if isinstance(fact, Message):
        for part in fact.args.values():
            yield from _options(part)
    elif isinstance(fact, str) and fact.startswith("--"):
        yield fact


def _way_there(finding: SourceFinding) -> tuple[RelatedLine, ...]:
    """From where in the loop it is called, and from where in what that calls: these name what could be left out."""
    calls = [other for other in finding.related if other.words.id == _CALLS]
    return tuple(RelatedLine(Location(other.place.file, other.place.line), other.words) for other in calls[:2])


def _unreported(judged: Sequence[SourceFinding], report: RunReport, judge: CostJudge) -> list[SourceFinding]:
    """Those that cost much at lines of which the run's own findings say nothing.

    Results that are kept by now took time when they were made: lines are counted from the first step on.
    """
    said, remedied = report.findings, {remedy.id for remedy in report.remedies if remedy.live.get("hits")}
    codes = {finding.code for finding in said} | {problem.code for problem in problems() if problem.remedy in remedied}
    spots = {judge.standing.now(finding.location) for finding in said if finding.location is not None}
    return [
        finding
        for finding in judged
        if finding.measured is not None
        and finding.measured.state == "costs"
        and (finding.measured.share or 0.0) >= _WORTH
        and finding.severity not in ("low", "hint")
        and finding.code not in codes
        and not spots & judge.standing.lines_of(finding.place)
    ]


def _as_finding(finding: SourceFinding, evidence: Evidence) -> Finding:
    assert finding.measured is not None
    ms = finding.measured.ms_per_step or 0.0
    return Finding(
        code=finding.code,
        family=finding.family,
        title=finding.title,
        # Nothing that merely costs time endangers the run.
        severity="medium",
        location=_location(finding),
        evidence={"line_ms_per_step": round(ms, 2), "line_share": round(finding.measured.share or 0.0, 3)},
        cause=message("check.costs_at_most", cause=finding.cause, ms=ms, step_ms=evidence.step_ms),
        remedy=None,
        change=finding.change,
        predicted_gain=None,
    )


def _side(
    judged: Sequence[SourceFinding], said: Sequence[Finding], project: Project, run: StoredRun
) -> SourceSide | None:
    codes = {finding.code for finding in said}
    states = [(finding, finding.measured.state) for finding in judged if finding.measured is not None]
    open_ = [
        finding
        for finding, state in states
        if state in ("not_measured", "not_reached")
        and finding.severity not in ("low", "hint")
        and finding.code not in codes
    ]
    return SourceSide(
        files=len(project.modules),
        free=sum(state == "free" for _, state in states),
        not_measured=tuple(Unmeasured(finding.code, finding.title, _location(finding)) for finding in open_),
        path=_common_path([finding.place.file for finding in open_], run),
    )


def _location(finding: SourceFinding) -> Location:
    return Location(finding.place.file, finding.place.line)


def _common_path(files: Iterable[str], run: StoredRun) -> str:
    """The file, or the folder that all of them are in."""
    names = sorted(set(files))
    if not names:
        return ""
    path = names[0] if len(names) == 1 else os.path.commonpath(names)
    inside = os.path.relpath(path, run.manifest.cwd)
    return path if inside.startswith("..") else inside
