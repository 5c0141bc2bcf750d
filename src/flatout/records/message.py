"""A fact that a person will read: an id and its figures. The words for it, in each language, are in `flatout.words`.

Code makes messages and decides by their ids; only the renderer turns one into a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The text of somebody else, an exception's for instance: shown as it is in every language.
VERBATIM = "verbatim"


@dataclass(frozen=True, slots=True)
class Message:
    """`args` are figures, names, other messages, or tuples of these; the templates of both languages name each."""

    id: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, repr(sorted(self.args.items()))))

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return self.id != VERBATIM or bool(self.args["text"])


def message(id: str, /, **args: Any) -> Message:
    return Message(id, args)


def verbatim(text: str) -> Message:
    return Message(VERBATIM, {"text": text})


NOTHING = verbatim("")


def to_plain(fact: Message) -> dict[str, Any]:
    """As JSON holds it."""
    return {"id": fact.id, "args": {name: _plain(value) for name, value in fact.args.items()}}


def from_plain(value: Any) -> Message:
    """What `to_plain` made; a bare string, as older recordings hold, is shown as it is."""
    if isinstance(value, str):
        return verbatim(value)
    return Message(str(value["id"]), {name: _restored(item) for name, item in value["args"].items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no such numbers
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"]) if value.keys() == {"float"} else from_plain(value)
    return tuple(_restored(item) for item in value) if isinstance(value, list) else value


def restore(value: Any) -> Any:
    """Of a JSON value: what `to_plain` made is a message again, everything else stays as it is."""
    if isinstance(value, dict) and value.keys() == {"id", "args"}:
        return from_plain(value)
    return [restore(item) for item in value] if isinstance(value, list) else value
