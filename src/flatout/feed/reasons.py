"""Why something cannot be done, as a message: errors that carry one, and its words for stderr."""

from __future__ import annotations

from ..records.message import Message, verbatim


class Reasoned(Exception):
    """Something cannot be done; `why` is the reason."""

    def __init__(self, why: Message) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return say(self.why)


def say(fact: Message) -> str:
    """In English, for stderr. Only then are the words loaded."""
    from ..words.render import english

    return english(fact)


def error_text(error: BaseException) -> Message:
    """The error of somebody else's code, its first line."""
    lines = str(error).strip().splitlines()
    return verbatim(f"{type(error).__name__}: {lines[0][:200] if lines else ''}")
