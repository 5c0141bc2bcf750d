"""What a search was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from flatout.app.plan import Wishes


@dataclass(frozen=True, slots=True)
class Settings:
    command: tuple[str, ...]
    wishes: Wishes = field(default_factory=Wishes)
    budget_s: float = 600.0
    metric: str | None = None
    higher: bool = True
    allow_writes: bool = False
    # Part of the time that is kept for the proof at the end, unless that needs less.
    reserve: float = 0.35
    # Takes the place of `budget_s` where steps are quick: as much is learnt in less time.
    quick_budget_s: float | None = None
