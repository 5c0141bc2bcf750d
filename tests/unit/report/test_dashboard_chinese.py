"""What a page gets in Chinese beside the report's own words."""

from __future__ import annotations

import json
from dataclasses import replace

from flatout.records.message import message, verbatim
from flatout.records.report import Cost, Finding, Grounds
from flatout.report.dashboard import chinese_of
from flatout.words.problems import problem_words
from tests.unit.report.test_terminal import STARVED

FOUND = Finding(
    "IN101", "input", "t", "high", None, {}, verbatim("c"), "loader.workers", verbatim("num_workers=2"), None
)


def test_the_sentence_and_the_problems_found() -> None:
    grounds = Grounds(True, 103.7, None, (Cost("input", 0.61),))
    verdict = replace(STARVED.verdict, grounds=grounds)
    notices = (message("run.utilisation_not_measured"), verbatim("something new"))
    report = replace(STARVED, verdict=verdict, findings=(FOUND, FOUND, replace(FOUND, code="XX999")), notices=notices)

    said = json.loads(json.dumps(chinese_of(report)))

    assert said["sentence"] == "GPU 等待数据的时间占每步的 61%（63.3 / 104 ms）。"
    assert list(said["problems"]) == ["IN101"] and said["notices"] == ["未测量 GPU 利用率", "something new"]
    assert said["problems"]["IN101"]["title"] == problem_words()["IN101"].title.chinese


def test_a_sentence_that_is_english_only_is_left_out() -> None:
    assert chinese_of(STARVED)["sentence"] is None
