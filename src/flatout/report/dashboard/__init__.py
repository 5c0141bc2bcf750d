"""The pages of the live dashboard: plain HTML, style and script, served as they lie here, and their words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.records.report import RunReport
from flatout.report.overview import spent_on
from flatout.words import chinese_if_known
from flatout.words.pages import DASHBOARD
from flatout.words.render import problem_words
from flatout.words.verdict import verdict_in_chinese

_HERE = Path(__file__).parent
# Colours and the charts are those of the report.
_SHARED = _HERE.parent / "html"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Stands in words.js for the words of both languages.
_PLACE_OF_WORDS = b"__WORDS__"


@dataclass(frozen=True, slots=True)
class StaticFile:
    path: Path

    @property
    def media_type(self) -> str:
        return _TYPES[self.path.suffix]

    def read(self) -> bytes:
        return self.path.read_bytes().replace(_PLACE_OF_WORDS, _words())


_PATHS = (
    *sorted(path for path in _HERE.iterdir() if path.suffix in _TYPES),
    _SHARED / "base.css",
    _SHARED / "vendor" / "uPlot.min.css",
    _SHARED / "vendor" / "uPlot.iife.min.js",
)
FILES = {path.name: StaticFile(path) for path in _PATHS}


def page(name: str) -> str:
    """A whole page: "runs" or "run"."""
    return (_HERE / f"{name}.html").read_text(encoding="utf-8")


def chinese_of(report: RunReport) -> dict[str, Any]:
    """The report in Chinese: problems by their codes, findings and notices in the report's order, null if not known."""
    known, machine = problem_words(), report.machine
    codes = sorted({finding.code for finding in report.findings} & known.keys())
    return {
        "sentence": verdict_in_chinese(report.verdict),
        "problems": {code: {**known[code]._asdict(), "title": known[code].title.chinese} for code in codes},
        "findings": [
            {"cause": chinese_if_known(found.cause), "change": chinese_if_known(found.change or "")}
            for found in report.findings
        ],
        "notices": [chinese_if_known(notice) for notice in report.notices],
        "machine": chinese_if_known(machine.sentence) if machine is not None and machine.sentence else None,
        "parts": [chinese_if_known(part) for part, _ in spent_on(report)],
    }


def _words() -> bytes:
    """As the script has them: the texts of each language by their names."""
    tables = {
        "en": {name: both.english for name, both in DASHBOARD.items()},
        "zh": {name: both.chinese for name, both in DASHBOARD.items()},
    }
    return json.dumps(tables, ensure_ascii=False, indent=1).encode()
