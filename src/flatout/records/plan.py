"""What is to be tried on a script, in which order, and what is left out and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flatout.records.message import Message
from flatout.records.report import Gain

# The message of a remedy whose class the user has not allowed.
NOT_ALLOWED = "plan.not_allowed"


def priority(gain: float) -> str:
    """How much a gain is worth: "high", "medium" or "low"."""
    if gain >= 1.2:
        return "high"
    return "medium" if gain >= 1.05 else "low"


@dataclass(frozen=True, slots=True)
class Planned:
    """A remedy worth a trial. `codes` are the findings it answers; `predicted` is the largest gain among theirs."""

    id: str
    value: Any
    safety: str
    title: str
    why: Message
    codes: tuple[str, ...] = ()
    predicted: Gain | None = None

    @property
    def priority(self) -> str:
        return priority(self.predicted.mid if self.predicted is not None else 1.0)


@dataclass(frozen=True, slots=True)
class LeftOut:
    id: str
    why: Message

    @property
    def forbidden_class(self) -> str | None:
        """The class of remedies that the user has not allowed, if that is why."""
        why = self.why
        return str(why.args["safety"]) if why.id == NOT_ALLOWED else None


@dataclass(frozen=True, slots=True)
class Plan:
    remedies: tuple[Planned, ...]
    left_out: tuple[LeftOut, ...] = ()
