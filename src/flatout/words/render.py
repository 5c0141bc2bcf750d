"""Turns a message into a sentence: the only place where a fact becomes text."""

from __future__ import annotations

import importlib
import pkgutil
import re
import string
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from ..records.message import VERBATIM, Message
from .table import Words

Language = Literal["en", "zh"]
_COMMA: dict[Language, str] = {"en": ", ", "zh": "、"}
_WITH_POWER = re.compile(r"\b\d(?:\.\d+)?e\+\d+\b")


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
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        try:
            table: Mapping[str, Words] = getattr(importlib.import_module(f"{__package__}.{info.name}"), "TABLE", {})
        except ImportError:
            if __package__ == "flatout.words":
                raise
            continue  # in a script's process, which has remedies but not all of flatout
        assert not every.keys() & table.keys(), f"two tables have {sorted(every.keys() & table.keys())}"
        every |= table
    return every


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
