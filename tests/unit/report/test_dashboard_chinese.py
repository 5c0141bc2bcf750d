"""What a page gets in Chinese beside the report's own words."""

from __future__ import annotations

import json
from dataclasses import replace

from flatout.dashboard.hub import verdict_of
from flatout.records.message import message, verbatim
from flatout.records.report import Cost, Finding, Grounds
from flatout.report.dashboard import chinese_of
from flatout.words.render import problem_words
from tests.unit.report.test_terminal import DISTURBED, STARVED

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


def test_a_disturbed_machine_and_what_the_step_is_spent_on() -> None:
    report = replace(DISTURBED, parts={"model": 0.5, "not running": 0.496, "gc": 0.004})

    shown = json.loads(json.dumps(verdict_of(report)))

    assert shown["spent_on"] == [["model", 0.5], ["no processor free", 0.496]]
    assert shown["chinese"]["parts"] == ["模型计算", "没有空闲处理器"]
    assert shown["machine"]["sentence"].startswith("Other processes had 1.2 cores of 2")
    assert shown["chinese"]["machine"].startswith("其他进程")
    assert chinese_of(STARVED)["machine"] is None and chinese_of(STARVED)["parts"] == []


def test_a_sentence_that_is_english_only_is_left_out() -> None:
    assert chinese_of(STARVED)["sentence"] is None
