"""What a detector says of a run, on a page in Chinese. All that detectors say: tests/unit/problems/test_words.py."""

from __future__ import annotations

from dataclasses import replace

from flatout.problems.catalogue import find_problem
from flatout.report.html.page import draw_page
from flatout.report.html.run_page import RunMaterial, run_page
from flatout.words import chinese, english
from tests.cases import cases_of
from tests.unit.report.test_terminal import STARVED


def test_a_finding_is_told_in_the_readers_language() -> None:
    problem = find_problem("IN101")
    (finding, *_) = (found for case in cases_of(problem).runs if case.found for found in problem.found_in_run(case.run))
    said = english(finding.cause)

    page = draw_page(run_page(RunMaterial(replace(STARVED, findings=(finding,)))), "zh")

    assert f'<span class="in-zh" lang="zh">{chinese(finding.cause)}。</span>' in page
    assert f'<span class="in-en" lang="en">{said[0].upper()}{said[1:]}.</span>' in page
