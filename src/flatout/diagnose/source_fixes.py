"""Applies the fixes of findings in memory, round by round, until none is left that can be applied.

A round takes all fixes that do not get in each other's way; the others wait for the next one, in which every place is
found anew. A fix that leaves a file less sound, or its own finding where it was, is taken back and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from flatout.diagnose.source_check import check_project
from flatout.errors import FlatoutError
from flatout.problems.catalogue import Problem
from flatout.records.source import CheckReport, Edit, Fix, SourceFinding
from flatout.source.project.loading import with_contents
from flatout.source.project.project import Project
from flatout.source.syntax.documents import Texts, encode_texts, read_texts, soundness
from flatout.source.syntax.edits import Change, Text, add_import, apply_changes, has_conflict, shift_place

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
    return is_wanted(finding.fix, unsafe) and not _is_barred(finding, barred)


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


def _is_barred(finding: SourceFinding, barred: set[tuple[str, str | None]]) -> bool:
    assert finding.fix is not None
    touched = {edit.place.file for edit in finding.fix.edits}
    return (finding.place.file, finding.code) in barred or any((file, None) in barred for file in touched)


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
