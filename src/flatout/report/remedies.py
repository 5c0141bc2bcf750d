"""The part of the terminal's verdict that says which remedies were in force, and what became of the others."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from flatout.records.report import RemedyState
from flatout.report import text
from flatout.report.page import Page, paragraph
from flatout.words import english

_SAY = {
    "head": "Remedies in this run",
    "applied": "{id} = {value}{live}",
    "refused": "{id}: not applied, because {why}",
    "failed": "{id}: not applied ({why})",
    "reverted": "{id}: undone after {step} steps, because {why}",
}
_STYLE = {"applied": "green", "reverted": "yellow"}


def applied(page: Page) -> Iterator[Text]:
    remedies = page.report.remedies
    if not remedies:
        return
    yield Text(" " + _SAY["head"], "bold")
    for one in remedies:
        yield from paragraph(one.safety, text.clean(in_words(one)), page, _STYLE.get(one.state, "yellow"))


def in_words(one: RemedyState) -> str:
    """What became of it, in one line."""
    words = _SAY.get(one.state, _SAY["failed"])
    return words.format(id=one.id, value=_value(one.value), live=_live(one), why=english(one.why), step=one.step)


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "on"
    return "on" if value is True else str(value)


def _live(one: RemedyState) -> str:
    live = ", ".join(f"{name} {value}" for name, value in one.live.items())
    return f" ({live})" if live else ""
