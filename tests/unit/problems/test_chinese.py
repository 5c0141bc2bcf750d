"""Every problem of the catalogue is told of in Chinese."""

from __future__ import annotations

import re

import pytest

from flatout.problems.catalogue import Problem, problems
from flatout.problems.chinese.catalogue import CHINESE

_CHINESE = re.compile("[\u4e00-\u9fff]")
# What a terminal of 80 columns has room for beside a code.
_LONGEST_TITLE = 32


def test_every_problem_has_its_words_and_no_words_are_left_over() -> None:
    assert {problem.code for problem in problems()} == set(CHINESE)


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_a_title_and_two_paragraphs(problem: Problem) -> None:
    words = CHINESE[problem.code]

    assert len(words.title) <= _LONGEST_TITLE and _CHINESE.search(words.title) and not words.title.endswith("。")
    for text in (words.what_it_is, words.what_to_do):
        assert _CHINESE.search(text) and text.endswith("。")
        # Code is between backticks, and every one is closed.
        assert text.count("`") % 2 == 0
        # Chinese text has its own stops.
        assert not re.search(r"[\u4e00-\u9fff][,;:!?]", re.sub("`[^`]*`", "", text))


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_settings_it_names_are_those_of_the_english_text(problem: Problem) -> None:
    words = CHINESE[problem.code]

    named = set(re.findall(r"\b\w+(?==(?:True|False|\d|N\b))", words.what_to_do))

    assert named <= set(re.findall(r"\w+", problem.text)), named
