"""Every problem that can be seen in source: its heading, and its own cases."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pytest

from flatout.diagnose.source_check import apply_fixes
from flatout.problems.catalogue import HEADINGS, IN_SOURCE, Problem, problems
from flatout.records.source import SourceFinding
from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.source.syntax.files import soundness
from flatout.words import english
from tests.cases import cases_of
from tests.cases.code import SourceCase

_SEEN = [problem for problem in problems() if problem.in_source is not None]
_CASES = [
    pytest.param(problem, case, id=f"{problem.code}-{case.name.replace(' ', '-')}")
    for problem in _SEEN
    for case in cases_of(problem).source
]


def test_there_are_some() -> None:
    assert len(_SEEN) >= 10


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_it_says_how_it_shows_in_source_if_it_does(problem: Problem) -> None:
    at = problem.text.find(f"\n{IN_SOURCE}: ")

    assert (at > 0) == (problem.in_source is not None) == bool(cases_of(problem).source)
    if at > 0:
        assert problem.text.find(f"\n{HEADINGS[1]}: ") < at < problem.text.find(f"\n{HEADINGS[2]}: ")


@pytest.mark.parametrize("problem", _SEEN, ids=lambda problem: problem.code)
def test_it_has_cases_of_both_kinds(problem: Problem) -> None:
    found = [case for case in cases_of(problem).source if case.lines]
    quiet = [case for case in cases_of(problem).source if not case.lines]

    assert found and len(quiet) >= 2
    assert all(case.name.startswith("finds it") for case in found)
    assert all(case.name.startswith("quiet") for case in quiet)


@pytest.mark.parametrize(("problem", "case"), _CASES)
def test_its_cases_hold(problem: Problem, case: SourceCase) -> None:
    assert problem.in_source is not None

    found = list(problem.found_in_source(Code(load_texts(case.files))))

    assert {(finding.place.file, finding.place.line) for finding in found} == case.lines
    for finding in found:
        assert finding.code == problem.code and finding.family == problem.family
        assert finding.severity in ("high", "medium", "low", "hint")
        assert finding.cause and not english(finding.cause).endswith(".")
        assert finding.change and not english(finding.change).endswith(".")


def _with_fixes() -> Iterator[object]:
    for problem in _SEEN:
        for case in cases_of(problem).source:
            found = problem.found_in_source(Code(load_texts(case.files))) if case.lines else ()
            if any(finding.fix is not None for finding in found):
                yield pytest.param(problem, case, id=f"{problem.code}-{case.name.replace(' ', '-')}")


@pytest.mark.parametrize(("problem", "case"), list(_with_fixes()))
def test_its_fixes_cure_it_and_touch_nothing_else(problem: Problem, case: SourceCase) -> None:
    texts = {file: text.encode() for file, text in case.files.items()}
    before = list(problem.found_in_source(Code(load_texts(case.files))))
    fixable = [finding for finding in before if finding.fix is not None]

    done = apply_fixes(load_texts(case.files), [problem], texts.__getitem__, unsafe=True)

    assert not done.trouble and done.left.fixed >= 1
    # What is left has no fix: all that had one are gone.
    assert not any(finding.fix is not None for finding in done.left.findings)
    assert len(done.left.findings) == len(before) - len(fixable)
    for file, data in done.after.items():
        assert soundness(file, data) >= soundness(file, texts[file])
        assert _changed(texts[file].decode(), data.decode()) <= _lines_of(fixable, file)
    # And once is enough.
    after = {file: done.after.get(file, data).decode() for file, data in texts.items()}
    again = apply_fixes(load_texts(after), [problem], lambda file: after[file].encode(), unsafe=True)
    assert not again.after


def _changed(before: str, after: str) -> set[int]:
    """Lines of the text before that are not in the text after; what is put in counts for the line before it."""
    old, new = before.split("\n"), after.split("\n")
    found: set[int] = set()
    for kind, first, last, _, _ in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            found |= set(range(first + 1, last + 1)) or {first}
    return found


def _lines_of(findings: list[SourceFinding], file: str) -> set[int]:
    edits = [
        edit for finding in findings if finding.fix is not None for edit in finding.fix.edits if edit.place.file == file
    ]
    touched = {line for edit in edits for line in range(edit.place.line, max(edit.place.line, edit.place.end_line) + 1)}
    # An import stands among others, or at the top.
    imports = any(finding.fix is not None and finding.fix.imports for finding in findings)
    return touched | (set(range(4)) if imports else set())
