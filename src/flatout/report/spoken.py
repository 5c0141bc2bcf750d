"""What a report says in Chinese, for pages that get it as JSON: sentence, problems, findings, notices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flatout.records.message import Message
from flatout.records.report import RunReport
from flatout.report.phrases import phrase
from flatout.words import english
from flatout.words.problems import problem_words
from flatout.words.table import ProblemWords
from flatout.words.verdict import in_chinese


def spoken(report: RunReport) -> dict[str, Any]:
    """Problems by their codes, all else by its words. What is missing is said in the report's own words."""
    found = [words for one in report.findings for words in (one.cause, one.change) if words is not None]
    codes = {finding.code for finding in report.findings}
    return {
        "sentence": in_chinese(report.verdict),
        "problems": {code: _problem(problem_words()[code]) for code in sorted(codes & problem_words().keys())},
        "findings": _known(found),
        "notices": _known(report.notices),
    }


def _problem(words: ProblemWords) -> dict[str, str]:
    return {"title": words.title.chinese, "what_it_is": words.what_it_is, "what_to_do": words.what_to_do}


def _known(said: Iterable[Message | str]) -> dict[str, str]:
    return {english(words): chinese for words in said if (chinese := phrase(words)) is not None}
