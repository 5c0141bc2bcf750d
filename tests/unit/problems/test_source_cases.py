"""Every problem that can be seen in source: its heading, and its own cases."""

from __future__ import annotations

import pytest

from flatout.problems.cases import SourceCase
from flatout.problems.catalogue import HEADINGS, IN_SOURCE, Problem, problems
from flatout.source.code import Code
from flatout.source.loading import of_texts

_SEEN = [problem for problem in problems() if problem.in_source is not None]
_CASES = [
    pytest.param(problem, case, id=f"{problem.code}-{case.name.replace(' ', '-')}")
    for problem in _SEEN
    for case in problem.source_cases
]


def test_there_are_some() -> None:
    assert len(_SEEN) >= 10


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_it_says_how_it_shows_in_source_if_it_does(problem: Problem) -> None:
    at = problem.text.find(f"\n{IN_SOURCE}: ")

    assert (at > 0) == (problem.in_source is not None) == bool(problem.source_cases)
    if at > 0:
        assert problem.text.find(f"\n{HEADINGS[1]}: ") < at < problem.text.find(f"\n{HEADINGS[2]}: ")


@pytest.mark.parametrize("problem", _SEEN, ids=lambda problem: problem.code)
def test_it_has_cases_of_both_kinds(problem: Problem) -> None:
    found = [case for case in problem.source_cases if case.lines]
    quiet = [case for case in problem.source_cases if not case.lines]

    assert found and len(quiet) >= 2
    assert all(case.name.startswith("finds it") for case in found)
    assert all(case.name.startswith("quiet") for case in quiet)


@pytest.mark.parametrize(("problem", "case"), _CASES)
def test_its_cases_hold(problem: Problem, case: SourceCase) -> None:
    assert problem.in_source is not None

    found = list(problem.found_in_source(Code(of_texts(case.files))))

    assert {(one.place.file, one.place.line) for one in found} == case.lines
    for one in found:
        assert one.code == problem.code and one.family == problem.family
        assert one.severity in ("high", "medium", "low")
        assert one.cause and not one.cause.endswith(".") and one.change and not one.change.endswith(".")
