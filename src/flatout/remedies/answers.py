"""Would a remedy help a run like this one? Yes with a value, or no, because."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """`value` is what to apply, None for no; `why` is one sentence without its full stop."""

    value: Any
    why: str

    @property
    def is_yes(self) -> bool:
        return self.value is not None


def yes(value: Any, why: str) -> Answer:
    return Answer(value, why)


def no(why: str) -> Answer:
    return Answer(None, why)
