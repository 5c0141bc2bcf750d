"""Every problem of the catalogue: its documentation, its code, and its own cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tests.cases
from flatout.diagnose.findings import find_problems
from flatout.problems.catalogue import FAMILIES, HEADINGS, IN_RUN, Problem, find_problem, problems
from flatout.words import english
from tests.cases import cases_of
from tests.cases.evidence import Case

_RANGES = dict(zip(FAMILIES, ("IN1", "TR2", "SY3", "HO4", "CO5", "CA6", "ME7", "CF8", "RA9", "MS0"), strict=True))
_ALL = [pytest.param(problem, id=f"{problem.code}-{problem.slug}") for problem in problems()]
_CASES = [
    pytest.param(problem, case, id=f"{problem.code}-{case.name.replace(' ', '-')}")
    for problem in problems()
    for case in cases_of(problem).runs
]


def test_cases_are_of_a_problem() -> None:
    files = {(path.parent.name, path.stem) for path in Path(tests.cases.__file__).parent.glob("*/*.py")}

    assert files == {(problem.family, problem.slug) for problem in problems()}


def test_codes_and_names_are_unique() -> None:
    assert len({problem.code for problem in problems()}) == len(problems())
    assert len({problem.slug for problem in problems()}) == len(problems())


@pytest.mark.parametrize("problem", _ALL)
def test_it_is_documented(problem: Problem) -> None:
    assert re.fullmatch(_RANGES[problem.family] + r"\d\d", problem.code)
    assert problem.title and not problem.title.endswith(".") and len(problem.title) <= 60
    shown = [IN_RUN] if problem.in_run is not None else []
    at = [problem.text.find(f"\n{heading}: ") for heading in (*HEADINGS[:2], *shown, *HEADINGS[2:])]
    assert all(place > 0 for place in at) and at == sorted(at)
    assert problem.in_run is not None or problem.in_source is not None


@pytest.mark.parametrize("problem", [param for param in _ALL if param.values[0].in_run is not None])  # type: ignore[union-attr]
def test_it_has_cases_of_both_kinds(problem: Problem) -> None:
    found = [case for case in cases_of(problem).runs if case.found]
    quiet = [case for case in cases_of(problem).runs if not case.found]

    assert found and len(quiet) >= 2
    assert all(case.name.startswith("finds it") for case in found)
    assert all(case.name.startswith("quiet") for case in quiet)


@pytest.mark.parametrize(("problem", "case"), _CASES)
def test_its_cases_hold(problem: Problem, case: Case) -> None:
    assert problem.in_run is not None

    found = list(problem.found_in_run(case.run))

    assert bool(found) == case.found
    for finding in found:
        assert finding.code == problem.code and finding.family == problem.family
        assert finding.remedy == problem.remedy or f"`{finding.remedy}`" in problem.text
        assert finding.severity in ("high", "medium", "low")
        assert finding.evidence and finding.cause and not english(finding.cause).endswith(".")
        gain = finding.predicted_gain
        assert gain is None or (1 <= gain.low <= gain.mid <= gain.high and gain.method)


@pytest.mark.parametrize(("problem", "case"), [case for case in _CASES if case.values[1].found])  # type: ignore[union-attr]
def test_in_its_own_case_it_is_the_first_to_be_named(problem: Problem, case: Case) -> None:
    trouble: list[str] = []

    found = find_problems(case.run, trouble)

    assert not trouble
    assert found and found[0].code == problem.code


def test_what_explains_a_problem_exists() -> None:
    for problem in problems():
        for code in problem.comes_from:
            assert find_problem(code).code == code
