"""English sentences that records hold, in Chinese: those that many runs and fixes have.

A gap {n} takes a number, {} whatever stands there: a name, an interval, another phrase. What is not listed is shown
as it was written.
"""

from __future__ import annotations

import re
from functools import cache

from flatout.records.message import Message
from flatout.words import chinese

_GAPS = {"{n}": r"([-+]?[\d.,]+(?:e[-+]?\d+)?)", "{}": "(.+?)"}
PHRASES = {
    # What became of a remedy.
    "slower: {}": "变慢：{0}",
    "within {n} of the loss": "相差不超过损失的 {0}",
    # Why a remedy was not tried.
    "crashed": "崩溃",
    "hung": "卡住",
    "out of memory": "内存不足",
}


def phrase(words: Message | str) -> str | None:
    """The same in Chinese, None where it is not listed."""
    if isinstance(words, Message):
        return chinese(words)
    if (whole := PHRASES.get(words)) is not None:
        return whole
    for pattern, translated in _patterns():
        if (found := pattern.fullmatch(words)) is not None:
            return translated.format(*(phrase(gap) or gap for gap in found.groups()))
    return None


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The most particular first: one that is nearly all gaps takes what others say better."""
    listed = sorted(PHRASES.items(), key=lambda both: -len(re.sub(r"\{n?\}", "", both[0])))
    return tuple((_pattern(english), translated) for english, translated in listed if "{" in english)


def _pattern(english: str) -> re.Pattern[str]:
    parts = (_GAPS.get(part) or re.escape(part) for part in re.split(r"(\{n?\})", english))
    return re.compile("".join(parts), re.DOTALL)
