"""What a table of words is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
