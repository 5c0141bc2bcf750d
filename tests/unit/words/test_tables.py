"""Both languages know every message that the code makes, with every figure of it."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.records.message import Message, from_plain, message, to_plain, verbatim
from flatout.words import chinese, english
from flatout.words.render import Words, tables

SRC = Path(__file__).resolve().parents[3] / "src" / "flatout"


def fields(template: str) -> set[str]:
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(template) if name}


def made() -> Iterator[tuple[str, str, frozenset[str] | None]]:
    """Every `message("id", name=…)` in the source: where, its id, and its arguments unless some come as `**more`.

    In the script's process a message is a `fact("id", name=…)`.
    """
    for file in SRC.rglob("*.py"):
        if not re.search(r"records\.message import|recorder import .*\bfact\b", text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("message", "fact")
            ):
                continue
            where = f"{file.relative_to(SRC)}:{node.lineno}"
            for given in node.args[:1]:
                names = [one.arg for one in node.keywords]
                known = None if None in names else frozenset(name for name in names if name is not None)
                for id in literals(given):
                    yield where, id, known


def literals(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return literals(node.body) + literals(node.orelse)
    return []


@pytest.mark.parametrize("id", sorted(tables()))
def test_both_languages_name_the_same_figures(id: str) -> None:
    words: Words = tables()[id]

    assert words.english.strip() and words.chinese.strip()
    assert fields(words.english) == fields(words.chinese)


def test_every_message_of_the_code_has_words_for_all_its_figures() -> None:
    missing = [f"{where}: {id}" for where, id, _ in made() if id not in tables()]
    assert not missing

    wrong = [
        f"{where}: {id} has {sorted(args)}, its words {sorted(fields(tables()[id].english))}"
        for where, id, args in made()
        if args is not None and args != fields(tables()[id].english)
    ]
    assert not wrong


# Ids that are put together of parts, by what they begin or end with: titles, pages, and the causes of a few problems.
FAMILIES = re.compile(
    r"page\..*|dashboard\..*|verdict\..*|ca605\.cause_.*|co503\..*|co504\..*|ho402\..*|ho41[12]\..*|in118\..*"
    r"|ho408\.source_c.*|sy301\.source_.*|sy30[123]\.(cause|change)|warmup\..*|part\..*|kernel\..*|ladder\..*|ledger\..*|.*\.title"
)


def test_every_entry_is_said_by_somebody() -> None:
    texts = [file.read_text() for file in SRC.rglob("*.py") if file.parent.name != "words"]
    said = {literal for text in texts for literal in re.findall(r'"([a-z0-9_]+\.[a-z0-9_.]+)"', text)}

    assert not [id for id in tables() if "." in id and id not in said and not FAMILIES.fullmatch(id)]


def test_a_message_is_the_same_after_json() -> None:
    inner = message("out_of_memory")
    fact = Message("x", {"n": 3, "why": inner, "several": (inner, "b")})

    assert from_plain(to_plain(fact)) == fact
    assert from_plain("as it was written") == verbatim("as it was written")


def test_what_others_wrote_is_shown_as_it_is() -> None:
    assert english(verbatim("{odd}")) == chinese(verbatim("{odd}")) == "{odd}"
    assert english("older") == "older"
