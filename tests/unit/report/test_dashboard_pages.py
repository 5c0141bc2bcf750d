"""The dashboard's pages: both languages say the same things, and nothing in them goes past the policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import flatout.report.dashboard as dashboard
from flatout.records.report import PHASES

FOLDER = Path(dashboard.__file__).parent
SOURCES = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.suffix in (".js", ".html")}


def _words(language: str) -> dict[str, str]:
    table = re.search(r"^const WORDS = (.*?);$", dashboard.FILES["words.js"].read().decode(), re.DOTALL | re.MULTILINE)
    assert table
    words: dict[str, str] = json.loads(table[1])[language]
    return words


def test_both_languages_have_the_same_words_with_the_same_gaps() -> None:
    english, chinese = _words("en"), _words("zh")

    assert list(english) == list(chinese)
    gaps = {
        name: (set(re.findall(r"{\w+}", english[name])), set(re.findall(r"{\w+}", chinese[name]))) for name in english
    }
    assert {name: pair for name, pair in gaps.items() if pair[0] != pair[1]} == {}


def test_every_word_that_is_asked_for_is_there_and_none_is_left_over() -> None:
    text = "\n".join(SOURCES[name] for name in SOURCES if name != "words.js")
    asked = set(re.findall(r'(?:say\(|data-say=)"(\w+)"', text))
    # Names that are put together, and those that stand in a table.
    families = {name for name in _words("en") if re.match(r"(ago|bound|state|theme|f|c|s)_", name)}
    quoted = set(re.findall(r'"(\w+)"', text))

    assert asked <= set(_words("en"))
    assert set(_words("en")) - families <= asked | quoted


@pytest.mark.parametrize("name", sorted(name for name in SOURCES if name != "words.js"))
def test_no_page_asks_for_what_the_policy_forbids(name: str) -> None:
    text = SOURCES[name]

    assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "eval(" not in text
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script>|setAttribute\(\"style", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)


def test_the_phases_are_those_of_the_record() -> None:
    listed = re.search(r"const PHASES = \[(.*?)\]", SOURCES["charts.js"])

    assert listed is not None and tuple(re.findall(r'"(\w+)"', listed[1])) == PHASES
    assert all(f".phase-{phase} " in (FOLDER / "dashboard.css").read_text() for phase in PHASES)


def test_every_file_a_page_names_is_served() -> None:
    named = {name for text in SOURCES.values() for name in re.findall(r"/static/([\w.]+)", text)}

    assert named <= set(dashboard.FILES)
    assert all(dashboard.FILES[name].read() and dashboard.FILES[name].media_type for name in named)
