"""What a report says in Chinese, for pages that get it as JSON: its sentence, its problems, its notices."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flatout.problems.chinese.catalogue import CHINESE
from flatout.records.report import RunReport
from flatout.records.sentences import in_chinese
from flatout.report.phrases import phrase


def spoken(report: RunReport) -> dict[str, Any]:
    """Problems by their codes, notices by their words. What is missing is said in the report's own words."""
    codes = {finding.code for finding in report.findings}
    return {
        "sentence": in_chinese(report.verdict),
        "problems": {code: asdict(CHINESE[code]) for code in sorted(codes & CHINESE.keys())},
        "notices": {words: chinese for words in report.notices if (chinese := phrase(words)) is not None},
    }
