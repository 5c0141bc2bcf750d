"""Every problem, and all that its detectors say of its own cases, has words in both languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from flatout.problems.catalogue import Problem, problems
from flatout.records.message import VERBATIM, Message, message
from flatout.source.code import Code
from flatout.source.project.loading import load_texts
from flatout.words import chinese, english
from flatout.words.render import problem_words, tables
from tests.cases import cases_of

_CHINESE = re.compile("[\u4e00-\u9fff]")
# What a terminal of 80 columns has room for beside a code.
_LONGEST_TITLE = 32


def test_every_problem_has_its_words_and_no_words_are_left_over() -> None:
    assert {problem.code for problem in problems()} == set(problem_words())


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_a_title_and_two_paragraphs(problem: Problem) -> None:
    words = problem_words()[problem.code]

    title = words.title.chinese
    assert len(title) <= _LONGEST_TITLE and _CHINESE.search(title) and not title.endswith("。")
    for text in (words.what_it_is, words.what_to_do):
        assert _CHINESE.search(text) and text.endswith("。")
        # Code is between backticks, and every one is closed.
        assert text.count("`") % 2 == 0
        # Chinese text has its own stops.
        assert not re.search(r"[\u4e00-\u9fff][,;:!?]", re.sub("`[^`]*`", "", text))


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_settings_it_names_are_those_of_the_english_text(problem: Problem) -> None:
    words = problem_words()[problem.code]

    named = set(re.findall(r"\b\w+(?==(?:True|False|\d|N\b))", words.what_to_do))

    assert named <= set(re.findall(r"\w+", problem.text)), named


def _said_of_runs(problem: Problem) -> Iterator[Message | str]:
    for case in cases_of(problem).runs:
        for finding in problem.found_in_run(case.run) if case.found else ():
            gain = finding.predicted_gain
            yield finding.cause
            yield from (words for words in (finding.change, None if gain is None else gain.method) if words is not None)


def _said_of_source(problem: Problem) -> Iterator[Message | str]:
    for case in cases_of(problem).source:
        for finding in problem.found_in_source(Code(load_texts(case.files))) if case.lines else ():
            yield from (words for words in (finding.cause, finding.change) if words is not None)
            yield from (related.words for related in finding.related)
            if finding.fix is not None:
                yield finding.fix.words


def _messages(fact: object) -> Iterator[Message]:
    """The message and those it holds."""
    if isinstance(fact, Message):
        yield fact
        for value in fact.args.values():
            yield from _messages(value)
    elif isinstance(fact, list | tuple):
        for item in fact:
            yield from _messages(item)


def _figures(text: str) -> list[str]:
    return sorted(re.findall(r"\d[\d.]*", text))


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.code)
def test_all_that_its_detectors_say_has_words_in_both_languages(problem: Problem) -> None:
    said = [*_said_of_runs(problem), *_said_of_source(problem)]

    assert said
    for fact in said:
        assert isinstance(fact, Message), fact
        assert [part.id for part in _messages(fact) if part.id != VERBATIM and part.id not in tables()] == []
        if fact.id == VERBATIM:  # code, the same in every language
            continue
        assert _CHINESE.search(chinese(fact)) and not _CHINESE.search(english(fact)), fact
        assert _figures(chinese(fact)) == _figures(english(fact)), (english(fact), chinese(fact))


@pytest.mark.parametrize("say", [english, chinese])
def test_a_figure_may_be_large_or_small(say: Callable[[Message], str]) -> None:
    said = say(message("sy305.cause", function="f", wait_ms=1.234e3, step_ms=0.01234))

    assert "1,230" in said and "0.0123" in said
