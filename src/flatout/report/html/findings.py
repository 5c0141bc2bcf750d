"""Findings for a page: evidence in readable figures, the change to make, and the catalogue's text in its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flatout.records.message import VERBATIM, Message
from flatout.records.report import Finding, Location, RelatedLine
from flatout.report import text
from flatout.report.html.page import in_both, say, show
from flatout.words import english
from flatout.words.problems import problem_words

# What stands in a table of its own, or is said twice.
_ELSEWHERE = re.compile(r"table$|.*_configured(_at)?$|.*_live$")
_HEADING = re.compile(r"([A-Z][\w ]{3,30}): ")


# Text, and whether it is code.
Pieces = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A part of the text: a block of code, or a paragraph in pieces of words and of code; with its heading."""

    heading: str
    pieces: Pieces
    is_block: bool


@dataclass(frozen=True, slots=True)
class ShownFinding:
    code: str
    title: str
    severity: str
    gain: Markup | None
    # How the gain was reckoned: for a tooltip, and in both languages.
    by: str
    method: Markup | None
    cause: Markup
    change: Markup | None
    fix: str | None
    location: Location | None
    related: tuple[RelatedLine, ...]
    evidence: tuple[tuple[str, str], ...]
    explained: tuple[Explained, ...]
    # What it is and what to do about it, in Chinese; empty where the catalogue does not know it.
    what_it_is: Pieces
    what_to_do: Pieces


def page_findings(findings: Sequence[Finding], explained: Mapping[str, str]) -> list[ShownFinding]:
    return [_shown(finding, explained.get(finding.code, "")) for finding in findings]


def _shown(finding: Finding, explained: str) -> ShownFinding:
    gain = finding.predicted_gain
    chinese = problem_words().get(finding.code)
    return ShownFinding(
        code=finding.code,
        title=finding.title,
        severity=finding.severity,
        gain=None if gain is None else say("gain_range", low=f"×{gain.low:.2f}", high=f"×{gain.high:.2f}"),
        by="" if gain is None else english(gain.method),
        method=None if gain is None else show(gain.method),
        cause=show_sentence(finding.cause),
        change=None if finding.change is None else show(finding.change),
        fix=finding.fix,
        location=finding.location,
        related=finding.related,
        evidence=tuple(_evidence(finding)),
        explained=tuple(_parts(explained)),
        what_it_is=() if chinese is None else _pieces(chinese.what_it_is),
        what_to_do=() if chinese is None else _pieces(chinese.what_to_do),
    )


def show_sentence(words: Message) -> Markup:
    """With a capital and a full stop."""
    if words.id != VERBATIM:
        return say("sentence", words=words)
    return in_both(f"{_sentence(english(words)).rstrip('.')}.", None)


def _sentence(cause: str) -> str:
    """With a capital, unless it begins with a name of the code."""
    first = cause.partition(" ")[0]
    begins = cause[:1].upper() if first.isalpha() else cause[:1]
    return f"{begins}{cause[1:]}"


def _evidence(finding: Finding) -> Iterator[tuple[str, str]]:
    for name, value in finding.evidence.items():
        if not _ELSEWHERE.fullmatch(name):
            yield name.replace("_", " "), _figure(name, value)


def _figure(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    if name.endswith("_share"):
        return text.percent(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _parts(explained: str) -> Iterator[Explained]:
    """The paragraphs of a problem's docstring after its title; indented ones are code."""
    for paragraph in re.split(r"\n\s*\n", explained.strip())[1:]:
        if paragraph.startswith("    "):
            block = "\n".join(line.removeprefix("    ") for line in paragraph.split("\n"))
            yield Explained("", ((block, True),), True)
            continue
        named = _HEADING.match(paragraph)
        words = " ".join((paragraph[named.end() :] if named else paragraph).split())
        yield Explained(named[1] if named else "", _pieces(_sentence(words)), False)


def _pieces(words: str) -> Pieces:
    """What stands between backticks is every second piece."""
    return tuple((piece, number % 2 == 1) for number, piece in enumerate(words.split("`")) if piece)
