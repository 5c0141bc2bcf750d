"""Joins findings in source with a run: what each costs at its lines, and which turn out to be free.

Each is looked up in what the run measured of its kind: waits for the device, copies to it, pauses, the lines of the
training thread and of a loader's worker; a finding of the run of the same code speaks for those that have no line of
their own. What a run cannot have seen is not measured, and stays as it is.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Literal, Protocol, TypeVar

from flatout.diagnose.source_text import noted_lines
from flatout.model.measured import device_work_ms
from flatout.records.evidence import Evidence, LoaderUse
from flatout.records.message import NOTHING, Message, message
from flatout.records.report import Finding, Location
from flatout.records.source import SYNTAX, UNUSED, CheckReport, Measured, MeasuredRun, Place, Severity, SourceFinding
from flatout.source.project.project import Project
from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import LOOPS, Def, children, walk_scope
from flatout.store.run import StoredRun

# Of a step: two equal runs differ by as much.
FREE = 0.01
# A line that takes more than FREE of the time is met by one of so many looks, in 19 runs of 20.
_ENOUGH_LOOKS = 300
_CADENCE = ("eval", "checkpoint", "logging")
_EVALUATING = re.compile(r"eval|valid|test|infer|predict|checkpoint|load", re.I)
# Settings of a loader that are on or off.
_SWITCHES = ("num_workers", "pin_memory", "persistent_workers")
# Told by where they are: a finding of the run at another place is another one.
_BY_PLACE = ("sync", "transfer", "cadence")
_ORDER = {"costs": 1, "not_measured": 2, "not_reached": 3, "free": 5}
_SEVERITIES = ("error", "high", "medium", "low", "hint")
# A file and a line of it, as the check names them.
Spot = tuple[str, int]
# File systems round their times.
_GRACE_S = 1.0
# From so many parts of a path on, two that end alike mean the same file on two machines.
_LEAST_COMMON_PARTS = 2


class _Located(Protocol):
    @property
    def location(self) -> Location: ...


_Site = TypeVar("_Site", bound=_Located)


def join_costs(report: CheckReport, project: Project, run: StoredRun, evidence: Evidence) -> CheckReport:
    """The findings with what the run says of each: the dearest first, those that are free last and of low severity."""
    facts = MeasuredRun(run.id, evidence.step_ms, evidence.report.run.device)
    if not evidence.step_ms:
        return replace(report, run=facts, notices=(*report.notices, message("check.no_steps", run=run.id)))
    judge = CostJudge(project, run, evidence)
    found = [judge.with_cost(finding, report.findings) for finding in report.findings]
    notices = report.notices
    if changed := judge.standing.changed:
        notices = (*notices, message("check.files_changed", files=tuple(changed)))
    return replace(report, findings=tuple(sorted(found, key=_weight)), run=facts, notices=notices)


def _weight(finding: SourceFinding) -> tuple[int, float, int]:
    severity = _SEVERITIES.index(finding.severity)
    if finding.measured is None:
        return (0 if finding.code == SYNTAX else 4), 0.0, severity
    return _ORDER[finding.measured.state], -(finding.measured.ms_per_step or 0.0), severity


class CostJudge:
    """What one run says of the findings in one project."""

    def __init__(self, project: Project, run: StoredRun, evidence: Evidence) -> None:
        self._run = evidence
        self.standing = LineMap(project, run.manifest.started_unix_s, noted_lines(run, evidence.report))
        report = evidence.report
        self._syncs = self._by_spot(report.syncs)
        self._copies = self._by_spot(report.copies)
        self._pauses = self._by_spot(report.pauses)
        self._lines = self._by_spot(evidence.all_lines)
        self._in_workers = self._by_spot(evidence.worker_lines)
        self._judges: dict[str, Callable[[SourceFinding], Measured]] = {
            "sync": self._wait,
            "transfer": self._copy,
            "input": self._feed,
            "cadence": self._pause,
            "host": self._at_lines,
        }

    def with_cost(self, finding: SourceFinding, among: Sequence[SourceFinding]) -> SourceFinding:
        if finding.code in (SYNTAX, UNUSED):
            return finding
        measured = self._measured(finding, among)
        return replace(finding, measured=measured, severity=_severity(finding, measured))

    def _measured(self, finding: SourceFinding, among: Sequence[SourceFinding]) -> Measured:
        judge = self._judges.get(finding.family, self._unknown)
        judged = judge(finding) if finding.place.cell is None else _not_measured("check.cannot_tell")
        if judged.state != "costs" and (same := self.same(finding, among)) is not None:
            return self._as_found(same)
        return judged

    def same(self, wanted: SourceFinding, among: Sequence[SourceFinding]) -> Finding | None:
        """The finding of the run that is this one: of its code and at one of its places, or the only one of it."""
        alike = [finding for finding in self._run.report.findings if finding.code == wanted.code]
        places = self.spots(wanted)
        for finding in alike:
            if finding.location is not None and self.standing.now(finding.location) in places:
                return finding
        is_only = sum(other.code == wanted.code for other in among) == 1
        return alike[0] if alike and is_only and wanted.family not in _BY_PLACE else None

    def spots(self, finding: SourceFinding) -> set[Spot]:
        """The lines of a finding and of all places it names."""
        places = (finding.place, *(other.place for other in finding.related))
        return set().union(*(self.standing.lines_of(place) for place in places))

    # What the evidence of one kind says.

    def _wait(self, finding: SourceFinding) -> Measured:
        if not self._run.on_gpu:
            return _not_measured("check.no_gpu")
        own = self.standing.lines_of(finding.place)
        sites = [site for spot in own for site in self._syncs.get(spot, ())]
        if not sites:
            return self._not_seen(finding)
        timed_ms = min(sum(site.ms or 0.0 for site in sites), self._run.phase("sync").ms)
        # Hidden waits are counted, not timed: the line has to stand for them.
        hidden = {spot for spot in own for site in self._syncs.get(spot, ()) if site.ms is None}
        return self._cost(timed_ms + self._lines_ms(hidden))

    def _copy(self, finding: SourceFinding) -> Measured:
        if not self._run.on_gpu:
            return _not_measured("check.no_gpu")
        sites = [site for spot in self.standing.lines_of(finding.place) for site in self._copies.get(spot, ())]
        use = self._loader_of(finding)
        if not sites and use is not None:
            if (live := self._live(finding, use)) is not None:
                return live
            # What the loader hands out is copied somewhere else.
            sites = [site for site in self._run.report.copies if not _EVALUATING.search(site.function)]
        if not sites:
            return self._not_seen(finding)
        return self._cost(min(sum(site.ms for site in sites), self._run.phase("h2d").ms))

    def _feed(self, finding: SourceFinding) -> Measured:
        use = self._loader_of(finding)
        if use is None and finding.loader_setting is not None:
            return self._not_seen(finding) if self._run.loaders else _not_measured("check.cannot_tell")
        if use is None:
            return self._at_lines(finding)
        if (live := self._live(finding, use)) is not None:
            return live
        if not use.trains:
            return _not_measured("check.cannot_tell")
        waits_ms = self._run.starved_ms
        words = message("check.step_waits", ms=waits_ms)
        is_free = waits_ms < FREE * self._run.step_ms
        return self._free(waits_ms, words) if is_free else Measured("not_measured", words=words)

    def _pause(self, finding: SourceFinding) -> Measured:
        spots = self.standing.lines_of(finding.place)
        steps = max(1, self._run.report.run.steps)
        ms = sum(site.total_s * 1e3 / steps for spot in spots for site in self._pauses.get(spot, ()))
        ms = ms or sum(line.ms for spot in spots for line in self._lines.get(spot, ()) if line.phase in _CADENCE)
        if ms:
            # The device may be busy meanwhile, but not with the training.
            return self._cost(ms, may_hide=False)
        most_ms = sum(self._run.phase(name).ms for name in _CADENCE)
        if most_ms < FREE * self._run.step_ms:
            return self._free(most_ms, message("check.pauses", ms=most_ms))
        return _not_measured("check.cannot_tell")

    def _at_lines(self, finding: SourceFinding) -> Measured:
        spots = self.standing.lines_of(finding.place)
        in_workers = sum(line.share for spot in spots for line in self._in_workers.get(spot, ()))
        ms = self._lines_ms(spots) + in_workers * self._run.starved_ms
        if ms:
            return self._cost(ms)
        if self._run.line_looks < _ENOUGH_LOOKS:
            return _not_measured("check.few_looks")
        beside = self.standing.beside(finding.place)
        if beside is None:
            return _not_measured("check.cannot_tell")
        if any(spot in self._lines or spot in self._in_workers for spot in beside):
            return Measured("free", 0.0, 0.0, message("check.unseen", looks=self._run.line_looks))
        return self._not_seen(finding)

    def _unknown(self, finding: SourceFinding) -> Measured:
        return _not_measured(
            "check.no_gpu" if finding.family == "compute" and not self._run.on_gpu else "check.cannot_tell"
        )

    # What they have in common.

    def _cost(self, ms: float, may_hide: bool = True) -> Measured:
        """Time at a place; of that, what passes while the device computes anyway costs nothing."""
        step_ms = self._run.step_ms
        busy_ms = device_work_ms(self._run) if may_hide else 0.0
        exposed_ms = min(ms, max(0.0, step_ms - (busy_ms or 0.0)))
        words = message("check.hidden", ms=ms) if exposed_ms < 0.5 * ms else NOTHING
        return Measured("costs" if exposed_ms >= FREE * step_ms else "free", exposed_ms, exposed_ms / step_ms, words)

    def _free(self, ms: float, words: Message) -> Measured:
        return Measured("free", ms, ms / self._run.step_ms, words)

    def _not_seen(self, finding: SourceFinding) -> Measured:
        is_changed = finding.place.file in self.standing.changed
        return _not_measured("check.line_gone") if is_changed else Measured("not_reached")

    def _as_found(self, finding: Finding) -> Measured:
        gain = finding.predicted_gain
        if gain is None:
            return Measured("costs", words=finding.cause)
        share = 1 - 1 / gain.mid
        return Measured("costs", share * self._run.step_ms, share, finding.cause)

    def _loader_of(self, finding: SourceFinding) -> LoaderUse | None:
        """The loader, as it lived, that the finding is about."""
        spots = self.spots(finding)
        made = [use for use in self._run.loaders if use.made_at and self.standing.now(use.made_at) in spots]
        return next((use for use in made if use.trains), made[0] if made else None)

    def _live(self, finding: SourceFinding, use: LoaderUse) -> Measured | None:
        """A setting that the source leaves off may have come from the command line."""
        name = finding.loader_setting
        value = use.settings.get(name) if name in _SWITCHES else None
        if name is None or not value:
            return None
        return Measured("free", 0.0, 0.0, message("check.live_setting", name=name, value=value))

    def _lines_ms(self, spots: Iterable[Spot]) -> float:
        return sum(line.ms for spot in spots for line in self._lines.get(spot, ()))

    def _by_spot(self, sites: Iterable[_Site]) -> dict[Spot, list[_Site]]:
        found: dict[Spot, list[_Site]] = defaultdict(list)
        for site in sites:
            spot = self.standing.now(site.location)
            if spot is not None:
                found[spot].append(site)
        return found


def _severity(finding: SourceFinding, measured: Measured) -> Severity:
    """What is free is of no weight; a cost that was measured may be graver than the source alone could tell."""
    if measured.state == "free":
        return "hint" if finding.severity == "hint" else "low"
    if measured.state != "costs" or measured.share is None:
        return finding.severity
    ratio = 1 / (1 - min(measured.share, 0.99))
    by_cost: Severity = "high" if ratio >= 1.2 else "medium" if ratio >= 1.05 else "low"
    return max(finding.severity, by_cost, key=lambda each: -_SEVERITIES.index(each))


def _not_measured(why: Literal["check.no_gpu", "check.few_looks", "check.cannot_tell", "check.line_gone"]) -> Measured:
    return Measured("not_measured", words=message(why))


# Where the lines that a run saw stand in the source as it is now.


class LineMap:
    """Finds a run's lines again. `changed` are the files that were written since the run began."""

    def __init__(self, project: Project, begun_unix_s: float, snippets: Mapping[Location, str]) -> None:
        self._modules = {module.shown: module for module in project.modules if module.cells is None}
        self._by_path = {os.path.realpath(shown): shown for shown in self._modules}
        self._begun_unix_s = begun_unix_s
        self._snippets = snippets
        self._files: dict[str, str | None] = {}
        self._is_changed: dict[str, bool] = {}

    @property
    def changed(self) -> list[str]:
        """Of the files that were asked for."""
        return sorted(shown for shown, is_changed in self._is_changed.items() if is_changed)

    def now(self, location: Location) -> Spot | None:
        """None for a file that is not looked at, or a line that cannot be told from others any more."""
        if location.file not in self._files:
            self._files[location.file] = self._same_file(location.file)
        shown = self._files[location.file]
        if shown is None:
            return None
        if not self._was_changed(shown):
            return shown, location.line
        line = self._by_text(self._modules[shown], location)
        return None if line is None else (shown, line)

    def _same_file(self, file: str) -> str | None:
        known = self._by_path.get(os.path.realpath(file))
        if known is not None or os.path.exists(file):
            return known
        # Recorded elsewhere: by the end of its path.
        alike = {shown: _common_end(file, path) for path, shown in self._by_path.items()}
        most = max(alike.values(), default=0)
        best = [shown for shown, count in alike.items() if count == most]
        return best[0] if len(best) == 1 and most >= _LEAST_COMMON_PARTS else None

    def _was_changed(self, shown: str) -> bool:
        if shown not in self._is_changed:
            try:
                self._is_changed[shown] = os.stat(shown).st_mtime > self._begun_unix_s + _GRACE_S
            except OSError:
                self._is_changed[shown] = True
        return self._is_changed[shown]

    def _by_text(self, module: Module, location: Location) -> int | None:
        text = self._snippets.get(location)
        if not text:
            return None
        same = [number for number, line in enumerate(module.lines, start=1) if line.strip() == text]
        if len(same) > 1 and location.line in same:
            return location.line
        return same[0] if len(same) == 1 else None

    def lines_of(self, place: Place) -> set[Spot]:
        """All lines of the statement that stands there; of a block's head only the head, unless the block is meant."""
        last = max(place.line, place.end_line)
        module = self._modules.get(place.file)
        if module is None or place.cell is not None:
            return set()
        first = place.line
        statement = _statement_at(module.tree, place)
        if statement is not None:
            is_meant = (statement.lineno, statement.col_offset + 1) == (place.line, place.column)
            first = min(first, statement.lineno)
            last = max(last, _end(statement, is_meant))
        return {(place.file, number) for number in range(first, last + 1)}

    def beside(self, place: Place) -> set[Spot] | None:
        """Lines that run exactly as often: of the innermost loop or function around it, without the loops in there.

        None where there is neither, or a function may do both: set up, and then go on for long in a loop of its own.
        """
        module = self._modules.get(place.file)
        if module is None or place.cell is not None:
            return None
        around = _around(module.tree, place.line)
        if not around:
            return None
        inner = around[-1]
        nested = [loop for loop in walk_scope(inner) if isinstance(loop, LOOPS) and loop is not inner]
        if nested and not isinstance(inner, LOOPS):
            return None
        apart = {number for loop in nested for number in range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)}
        lines = set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)) - apart
        return {(place.file, number) for number in lines}


def _common_end(path: str, other: str) -> int:
    count = 0
    for a, b in zip(reversed(PurePath(path).parts), reversed(PurePath(other).parts), strict=False):
        if a != b:
            break
        count += 1
    return count


def _statements_around(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    """All statements that hold a line; those around another one come before it."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.match_case):
            waiting += node.body
        elif isinstance(node, ast.stmt | ast.ExceptHandler) and _holds(node, line):
            waiting += children(node)
            if isinstance(node, ast.stmt):
                yield node


def _statement_at(tree: ast.Module, place: Place) -> ast.stmt | None:
    """The innermost statement that the place lies in."""
    around = _statements_around(tree, place.line)
    return max(around, key=lambda statement: (statement.lineno, statement.col_offset), default=None)


def _around(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Functions and loops around a line, the outermost first."""
    return [
        statement
        for statement in _statements_around(tree, line)
        if isinstance(statement, Def) or (isinstance(statement, LOOPS) and line >= statement.body[0].lineno)
    ]


def _holds(node: ast.stmt | ast.ExceptHandler, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _end(statement: ast.stmt, whole: bool) -> int:
    body = getattr(statement, "body", None)
    if whole or not body:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, int(body[0].lineno) - 1)
