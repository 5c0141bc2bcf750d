"""Runs the catalogue over source: what is wrong, in the order of the text, less what comments ask to leave out. Applies
the fixes in memory, round by round, until none is left that can be applied.

A round takes all fixes that do not get in each other's way; the others wait for the next one, in which every place is
found anew. A fix that leaves a file less sound, or its own finding where it was, is taken back and said.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from flatout.diagnose.findings import not_judged
from flatout.errors import FlatoutError
from flatout.problems.catalogue import Problem, problems
from flatout.records.message import Message, message, verbatim
from flatout.records.source import SYNTAX, UNUSED, CheckReport, Edit, Fix, Place, SourceFinding
from flatout.source.code import Code
from flatout.source.project.loading import with_contents
from flatout.source.project.project import Project
from flatout.source.syntax.edits import Change, Text, add_import, apply_changes, has_conflict, shift_place
from flatout.source.syntax.files import Texts, encode_texts, read_texts, soundness
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
        and (
            any(known_code.startswith(code) for known_code in looked_for)
            or not any(problem.code.startswith(code) for problem in problems())
        )
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


MOST_ROUNDS = 10
# The bytes of a file; raises FlatoutError where it cannot be edited.
Read = Callable[[str], bytes]
_Part = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Fixed:
    """`first` is the report before, `left` the one after; `after` holds the files that change."""

    first: CheckReport
    left: CheckReport
    before: dict[str, bytes]
    after: dict[str, bytes]
    trouble: tuple[str, ...]


class _Refused(Exception):
    """Fixes of this file, or those of one code in it, have to stay out."""

    def __init__(self, file: str, code: str | None, words: str) -> None:
        self.key = (file, code)
        super().__init__(f"{file}: {words}")


@dataclass(slots=True)
class _Files:
    """What the files hold now, and held at first."""

    read: Read
    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    _texts: dict[str, Texts] = field(default_factory=dict)

    def text(self, part: _Part) -> Text:
        file, cell = part
        try:
            if file not in self._texts:
                if file not in self.before:
                    self.before[file] = self.read(file)
                self._texts[file] = read_texts(file, self.now(file))
            if cell not in self._texts[file]:
                raise FlatoutError(f"has no cell {cell} to edit")
        except FlatoutError as error:
            raise _Refused(file, None, f"{error}; it is left as it is") from error
        return Text(self._texts[file][cell])

    def now(self, file: str) -> bytes:
        return self.after.get(file, self.before[file])

    def put(self, contents: dict[str, bytes]) -> None:
        self.after.update(contents)
        for file in contents:
            self._texts.pop(file, None)


@dataclass(slots=True)
class _Round:
    """Fixes that go in together."""

    findings: list[SourceFinding] = field(default_factory=list)
    changes: dict[_Part, list[Change]] = field(default_factory=dict)

    def takes(self, more: dict[_Part, list[Change]]) -> bool:
        return not any(
            item != other and has_conflict(item, other)
            for part in more
            for item in more[part]
            for other in self.changes.get(part, ())
        )

    def with_(self, finding: SourceFinding, more: dict[_Part, list[Change]]) -> _Round:
        merged = {part: list(changes) for part, changes in self.changes.items()}
        for part, changes in more.items():
            # An import that two fixes need is put in once.
            merged[part] = list(dict.fromkeys([*merged.get(part, ()), *changes]))
        return _Round([*self.findings, finding], merged)

    def files(self) -> set[str]:
        return {file for file, _ in self.changes}


def apply_fixes(project: Project, looked_for: Sequence[Problem], read: Read, *, unsafe: bool) -> Fixed:
    """Nothing is written."""
    first = add_import_edits(check_project(project, looked_for), project)
    barred: set[tuple[str, str | None]] = set()
    trouble: list[str] = []
    while True:
        try:
            done = _attempt(
                project, looked_for, first, _Files(read), lambda finding: _may_apply(finding, unsafe, barred)
            )
        except _Refused as refused:
            # From the start again without it: what it went along with is not to suffer.
            assert refused.key not in barred
            barred.add(refused.key)
            trouble.append(str(refused))
        else:
            return replace(done, trouble=(*trouble, *done.trouble))


def _may_apply(finding: SourceFinding, unsafe: bool, barred: set[tuple[str, str | None]]) -> bool:
    fix = finding.fix
    is_barred = (finding.place.file, finding.code) in barred
    is_barred = is_barred or (fix is not None and any((edit.place.file, None) in barred for edit in fix.edits))
    return is_wanted(fix, unsafe) and not is_barred


def is_wanted(fix: Fix | None, unsafe: bool) -> bool:
    return fix is not None and (fix.is_safe or unsafe)


def add_import_edits(report: CheckReport, project: Project) -> CheckReport:
    """Fixes that bring the imports they need as edits of their own; without those that cannot have them."""
    modules = {module.shown: module for module in project.modules}

    def whole(fix: Fix) -> Fix | None:
        more: list[Edit] = []
        for file in dict.fromkeys(edit.place.file for edit in fix.edits if edit.place.file in modules):
            for statement in fix.imports:
                found = add_import(modules[file], statement)
                if found is None:
                    return None
                more += [found] if isinstance(found, Edit) else []
        return replace(fix, edits=(*fix.edits, *more), imports=())

    findings = [
        replace(finding, fix=whole(finding.fix)) if finding.fix is not None and finding.fix.imports else finding
        for finding in report.findings
    ]
    return replace(report, findings=tuple(findings))


def _attempt(
    project: Project,
    looked_for: Sequence[Problem],
    first: CheckReport,
    files: _Files,
    may_apply: Callable[[SourceFinding], bool],
) -> Fixed:
    report, count = first, 0
    trouble: tuple[str, ...] = ()
    for _ in range(MOST_ROUNDS):
        taken = _gathered([finding for finding in report.findings if may_apply(finding)], files)
        if not taken.findings:
            break
        began = _begins(taken, files)
        contents = _contents(taken, files)
        files.put(contents)
        project = with_contents(project, contents)
        report = add_import_edits(check_project(project, looked_for), project)
        _must_be_gone(taken, began, report)
        count += len(taken.findings)
    else:
        trouble = ("there is more to fix than was done at once; run it again",)
    after = {file: data for file, data in files.after.items() if data != files.before[file]}
    left = replace(report, fixed=count, fixed_files=len(after))
    return Fixed(first, left, files.before, after, trouble)


def _gathered(chosen: Iterable[SourceFinding], files: _Files) -> _Round:
    """As many fixes as go together."""
    wanted = [(finding, _changes(finding, files)) for finding in chosen]
    taken = _Round()
    for finding, changes in wanted:
        if taken.takes(changes):
            taken = taken.with_(finding, changes)
    broken = _broken(taken, files)
    if not broken:
        return taken
    # Two that are sound each by itself may not be together: both statements of a block taken out. One by one, then.
    careful = _Round()
    for finding, changes in wanted:
        source_finding = careful.with_(finding, changes)
        if not careful.takes(changes):
            continue
        if not any(file in broken for file, _ in changes) or not _broken(source_finding, files):
            careful = source_finding
        elif not any(file in careful.files() for file, _ in changes):
            words = f"the fix of {finding.code} in line {finding.place.line} would break it and is left out"
            raise _Refused(finding.place.file, finding.code, words)
    return careful


def _changes(finding: SourceFinding, files: _Files) -> dict[_Part, list[Change]]:
    assert finding.fix is not None
    found: dict[_Part, list[Change]] = {}
    for edit in finding.fix.edits:
        part = (edit.place.file, edit.place.cell)
        text = files.text(part)
        try:
            change = text.change(edit)
        except FlatoutError as error:
            raise _Refused(part[0], None, f"{error}; it is left as it is") from error
        if text.text[change.first : change.last] != change.text:
            found.setdefault(part, []).append(change)
    if not found:
        words = f"the fix of {finding.code} in line {finding.place.line} changes nothing and is left out"
        raise _Refused(finding.place.file, finding.code, words)
    return found


def _contents(taken: _Round, files: _Files) -> dict[str, bytes]:
    found = {}
    for file in sorted(taken.files()):
        texts = {
            cell: apply_changes(files.text((file, cell)).text, changes)
            for (of, cell), changes in taken.changes.items()
            if of == file
        }
        try:
            found[file] = encode_texts(file, files.now(file), texts)
        except FlatoutError as error:
            raise _Refused(file, None, f"{error}; it is left as it is") from error
    return found


def _broken(taken: _Round, files: _Files) -> set[str]:
    """Files that would be less sound than they are."""
    contents = _contents(taken, files)
    return {file for file, data in contents.items() if soundness(file, data) < max(1, soundness(file, files.now(file)))}


def _begins(taken: _Round, files: _Files) -> dict[int, tuple[int, int]]:
    """Where each finding's place will begin after the round."""
    found = {}
    for at, finding in enumerate(taken.findings):
        part = (finding.place.file, finding.place.cell)
        changes = taken.changes.get(part)
        begins = (finding.place.line, finding.place.column)
        found[at] = shift_place(files.text(part), changes, finding.place) if changes else begins
    return found


def _must_be_gone(taken: _Round, began: dict[int, tuple[int, int]], report: CheckReport) -> None:
    left = {
        (finding.code, finding.place.file, finding.place.cell, finding.place.line, finding.place.column)
        for finding in report.findings
    }
    for at, finding in enumerate(taken.findings):
        if (finding.code, finding.place.file, finding.place.cell, *began[at]) in left:
            words = f"{finding.code} in line {finding.place.line} is still found after its fix, which is left out"
            raise _Refused(finding.place.file, finding.code, words)
