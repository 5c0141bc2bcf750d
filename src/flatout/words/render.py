"""Turns a message into a sentence: the only place where a fact becomes text, by the tables of this package.

A module has its entries in TABLE, and what is said of problems in PROBLEMS.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import string
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Literal, NamedTuple

from ..records.message import VERBATIM, Message

Language = Literal["en", "zh"]
_COMMA: dict[Language, str] = {"en": ", ", "zh": "、"}
_WITH_POWER = re.compile(r"\b\d(?:\.\d+)?e\+\d+\b")


class Words(NamedTuple):
    """Two templates that name the same arguments: `{wait_ms:.3g} of {step_ms:.3g} ms`.

    An argument that is a message is rendered in the same language; of a tuple every item is, with commas between.
    """

    english: str
    chinese: str


class ProblemWords(NamedTuple):
    """A problem's title in both languages, and its text in Chinese (what stands between backticks is code).

    The English text is the docstring of the problem's module, which `flatout explain` shows: it is not repeated here.
    """

    title: Words
    what_it_is: str
    what_to_do: str


def titles(problems: Mapping[str, ProblemWords]) -> dict[str, Words]:
    """The titles as entries of a table: `in101.title`."""
    return {f"{code.lower()}.title": words.title for code, words in problems.items()}


def english(fact: Message | str) -> str:
    return render(fact, "en")


def chinese(fact: Message | str) -> str:
    return render(fact, "zh")


def chinese_if_known(fact: Message | str) -> str | None:
    """None for a string: it is English only."""
    return None if isinstance(fact, str) else chinese(fact)


def render(fact: Message | str, language: Language) -> str:
    """A string stays as it is."""
    if isinstance(fact, str):
        return fact
    if fact.id == VERBATIM:
        return str(fact.args["text"])
    words = tables().get(fact.id)
    if words is None:  # of a newer flatout
        return f"{fact.id} {dict(fact.args)}" if fact.args else fact.id
    template = words.english if language == "en" else words.chinese
    return _Formatter(language).vformat(template, (), fact.args)


@cache
def tables() -> Mapping[str, Words]:
    """The tables of all modules of this package, as one."""
    every: dict[str, Words] = {}
    for module in _modules():
        table: Mapping[str, Words] = getattr(module, "TABLE", {})
        assert not every.keys() & table.keys(), f"two tables have {sorted(every.keys() & table.keys())}"
        every |= table
    return every


@cache
def problem_words() -> dict[str, ProblemWords]:
    """What is said of every problem, by its code."""
    return {code: words for module in _modules() for code, words in getattr(module, "PROBLEMS", {}).items()}


def _modules() -> Iterator[ModuleType]:
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        try:
            yield importlib.import_module(f"{__package__}.{info.name}")
        except ImportError:
            if __package__ == "flatout.words":
                raise  # else in a script's process, which has remedies but not all of flatout


def plain(text: str) -> str:
    """Figures as people write them: `{:.3g}` says 1.16e+03 where a sentence should say 1,160."""
    return _WITH_POWER.sub(lambda found: f"{float(found.group()):,.0f}", text)


class _Formatter(string.Formatter):
    def __init__(self, language: Language) -> None:
        self._language = language

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """`{words!c}` begins a sentence: with a capital, unless a name of the code comes first."""
        if conversion != "c":
            return super().convert_field(value, conversion)
        text = self.format_field(value, "")
        is_word = text.partition(" ")[0].rstrip(",;:").isalpha()
        return f"{text[:1].upper()}{text[1:]}" if is_word else text

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Message):
            return render(value, self._language)
        if isinstance(value, list | tuple):
            return _COMMA[self._language].join(self.format_field(item, format_spec) for item in value)
        formatted = str(super().format_field(value, format_spec))
        return plain(formatted) if isinstance(value, int | float) else formatted
