"""What a well-run training meets, and whether this run does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flatout.records.message import Message

State = Literal["met", "missed", "not measured"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist: what is asked for, whether it is met, and the figure that says so."""

    group: str
    asked: Message | str
    state: State
    figure: Message | str
