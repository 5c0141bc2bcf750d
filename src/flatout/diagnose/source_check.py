"""Runs the catalogue over source: what is wrong, in the order of the text, less what comments ask to leave out."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from flatout.diagnose.findings import not_judged
from flatout.errors import FlatoutError
from flatout.problems.catalogue import Problem, problems
from flatout.records.message import Message, message, verbatim
from flatout.records.source import SYNTAX, UNUSED, CheckReport, Place, SourceFinding
from flatout.source.code import Code
from flatout.source.project.project import Project
from flatout.source.syntax.module import Ignore, Module, find_ignores

_DEEPEST = 20_000
Line = tuple[str, int | None, int]


def select_problems(select: Sequence[str], ignore: Sequence[str]) -> tuple[Problem, ...]:
    """The problems to look for. Both lists hold codes, beginnings of codes, or names; no `select`: all."""
    for word, option in [*((w, "select") for w in select), *((w, "ignore") for w in ignore)]:
        if not any(_means(word, problem) for problem in problems()):
            raise FlatoutError(f"--{option}: no problem is called {word!r}; `flatout explain` lists them")
    return tuple(
        problem
        for problem in problems()
        if problem.in_source is not None
        and (not select or any(_means(word, problem) for word in select))
        and not any(_means(word, problem) for word in ignore)
    )


def _means(word: str, problem: Problem) -> bool:
    plain = word.strip().lower().replace("-", "_")
    return plain == "all" or plain == problem.slug or (bool(plain) and problem.code.lower().startswith(plain))


def check_project(project: Project, looked_for: Iterable[Problem]) -> CheckReport:
    """All findings. A detector that fails costs its findings and leaves a line in `trouble`."""
    before = sys.getrecursionlimit()
    # A sum of a thousand terms is a tree a thousand deep, and we go through it with a few calls for each.
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        return _find_all(project, tuple(looked_for))
    finally:
        sys.setrecursionlimit(before)


def _find_all(project: Project, known: tuple[Problem, ...]) -> CheckReport:
    code = Code(project)
    trouble: list[Message] = [verbatim(line) for line in project.trouble]
    found: list[SourceFinding] = []
    for problem in known:
        try:
            found += problem.found_in_source(code)
        except Exception as error:  # a bug of ours must not keep the user from the other findings
            trouble.append(not_judged(problem, error))
    kept = _keep_one_hint_per_file(
        _drop_ignored(_merge_same_place(found), project.modules, {problem.code for problem in known})
    )
    kept += [_syntax(module) for module in project.modules if module.error is not None]
    kept.sort(
        key=lambda finding: (
            finding.place.file,
            finding.place.cell or 0,
            finding.place.line,
            finding.place.column,
            finding.code,
        )
    )
    return CheckReport(tuple(kept), len(project.modules), _lines(kept, project), tuple(trouble))


def _merge_same_place(found: Iterable[SourceFinding]) -> list[SourceFinding]:
    """A default that feeds two loaders is one finding with both of them."""
    by_place: dict[tuple[str, Place], SourceFinding] = {}
    for finding in found:
        key = (finding.code, finding.place)
        before = by_place.get(key)
        if before is None:
            by_place[key] = finding
        else:
            more = tuple(other for other in finding.related if other not in before.related)
            by_place[key] = replace(before, related=(*before.related, *more))
    return list(by_place.values())


def _keep_one_hint_per_file(found: Sequence[SourceFinding]) -> list[SourceFinding]:
    """Of the hints of a file one is enough, which names the others: nothing is wrong there."""
    hints: dict[str, list[SourceFinding]] = defaultdict(list)
    for source_finding in found:
        if source_finding.severity == "hint":
            hints[source_finding.place.file].append(source_finding)
    kept = [finding for finding in found if finding.severity != "hint"]
    for several in hints.values():
        first, *others = sorted(several, key=lambda finding: (finding.code, finding.place.line))
        codes = sorted({finding.code for finding in others} - {first.code})
        if codes and first.change is not None:
            first = replace(first, change=message("check.see_also", change=first.change, codes=tuple(codes)))
        kept.append(first)
    return kept


def _drop_ignored(
    found: Sequence[SourceFinding], modules: Iterable[Module], looked_for: set[str]
) -> list[SourceFinding]:
    comments: dict[Line, tuple[Module, Ignore]] = {}
    for module in modules:
        for comment in find_ignores(module):
            place = module.at(comment.line)
            comments[place.file, place.cell, place.line] = (module, comment)
    used: dict[Line, set[str]] = defaultdict(set)
    kept = []
    for source_finding in found:
        place = source_finding.place
        lines = [(place.file, place.cell, n) for n in range(place.line, max(place.line, place.end_line) + 1)]
        at = next((ln for ln in lines if ln in comments and _silences(comments[ln][1], source_finding.code)), None)
        if at is None:
            kept.append(source_finding)
        else:
            used[at].add(source_finding.code)
    unused = [_unused_comment(*comments[at], used[at], looked_for) for at in comments]
    return kept + [finding for finding in unused if finding is not None]


def _silences(comment: Ignore, code: str) -> bool:
    return not comment.codes or any(code.startswith(known_code) for known_code in comment.codes)


def _unused_comment(module: Module, comment: Ignore, used: set[str], looked_for: set[str]) -> SourceFinding | None:
    """Codes that were not looked for cannot be called unused."""
    idle = [
        code
        for code in comment.codes
        if not any(known_code.startswith(code) for known_code in used)
        and (any(known_code.startswith(code) for known_code in looked_for) or not _exists(code))
    ]
    if not idle and (comment.codes or used):
        return None
    named = f"ignore[{', '.join(idle)}]" if idle else "ignore"
    return SourceFinding(
        code=UNUSED,
        family="check",
        title="An ignore comment that silences nothing",
        severity="low",
        place=module.at(comment.line, comment.column, comment.line, comment.column + len(comment.text)),
        cause=message("check.unused_ignore", comment=named),
        change=message("check.delete_comment"),
    )


def _exists(code: str) -> bool:
    return any(problem.code.startswith(code) for problem in problems())


def _syntax(module: Module) -> SourceFinding:
    assert module.error is not None
    line, column, words = module.error
    return SourceFinding(
        code=SYNTAX,
        family="check",
        title="The file is no Python",
        severity="error",
        place=module.at(line, column),
        cause=verbatim(words),
        change=None,
    )


def _lines(found: Iterable[SourceFinding], project: Project) -> dict[Line, str]:
    texts = {module.shown: module for module in project.modules}
    lines: dict[Line, str] = {}
    for finding in found:
        place = finding.place
        key = (place.file, place.cell, place.line)
        module = texts.get(place.file)
        if module is None:
            source, number = project.read(place.file).split("\n"), place.line
        else:
            source, number = module.lines, _in_text(module, place)
        if 1 <= number <= len(source):
            lines[key] = source[number - 1]
    return lines


def _in_text(module: Module, place: Place) -> int:
    """The line of the module's text, also for a notebook."""
    if module.cells is None or place.cell is None:
        return place.line
    return module.cells.starts[module.cells.numbers.index(place.cell)] + place.line - 1
