"""What detectors say of a run, in Chinese: every sentence of the catalogue's cases, with the same figures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flatout.problems.catalogue import Problem, problems
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.report.phrases import phrase
from flatout.words import english
from tests.unit.report.test_terminal import STARVED

# A change with one of these is a sentence; one without is code, the same in every language.
_WORDS = re.compile(
    r"\b(and|or|the|of|to|a|it|instead|once|out|each|every|before|after|find|see|keep|make|fewer|meanwhile|without)\b"
)


def _figures(text: str) -> list[str]:
    return sorted(re.findall(r"\d[\d.]*", text))


@pytest.mark.parametrize("problem", [one for one in problems() if one.cases], ids=lambda one: one.code)
def test_what_is_said_of_a_run_is_said_in_chinese(problem: Problem) -> None:
    found = [one for case in problem.cases if case.found for one in problem.found_in_run(case.run)]
    said = {one.cause for one in found}
    said |= {one.change for one in found if one.change is not None and _WORDS.search(english(one.change))}
    said |= {one.predicted_gain.method for one in found if one.predicted_gain is not None}

    for words in said:
        chinese = phrase(words)
        assert chinese is not None, words
        assert re.search("[一-鿿]", chinese) and _figures(chinese) == _figures(english(words)), (words, chinese)


def test_a_figure_may_be_large_or_small() -> None:
    assert phrase("the main process spends 1.2e+03 of each 1.31e+03 ms step loading the batch") is not None


def test_a_finding_is_told_in_the_readers_language() -> None:
    found = next(one for one in problems() if one.code == "IN101")
    (finding, *_) = (one for case in found.cases if case.found for one in found.found_in_run(case.run))
    chinese, said = phrase(finding.cause), english(finding.cause)

    page = draw_page(run_page(RunMaterial(replace(STARVED, findings=(finding,)))), "zh")

    assert f'<span class="in-zh" lang="zh">{chinese}。</span>' in page
    assert f'<span class="in-en" lang="en">{said[0].upper()}{said[1:]}.</span>' in page
