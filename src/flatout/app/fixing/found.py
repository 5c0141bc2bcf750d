"""What a search has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from flatout.records.fix import Tried
from flatout.records.plan import LeftOut
from flatout.records.proof import Ceiling

NOTHING_LEFT = "nothing was left to try"


class Found:
    """Of a remedy that was tried twice the last word counts."""

    def __init__(self, tell: Callable[[Tried], None] = lambda one: None) -> None:
        self._tell = tell
        self.profile: dict[str, Any] = {}
        self.tried: list[Tried] = []
        self.left_out: dict[str, LeftOut] = {}
        self.ceiling: Ceiling | None = None
        self.ended = NOTHING_LEFT

    def put(self, more: Iterable[Tried]) -> None:
        for one in more:
            mine = (one.planned.id, one.planned.value)
            self.tried = [other for other in self.tried if (other.planned.id, other.planned.value) != mine]
            if one.state == "kept":
                # Another value of the same remedy has had its day.
                self.tried = [_outdone(other, one) for other in self.tried]
            self.tried.append(one)
            self._tell(one)


def _outdone(before: Tried, by: Tried) -> Tried:
    if before.planned.id != by.planned.id or before.state != "kept":
        return before
    return replace(before, state="outdone", why=f"{by.planned.value} is better still")
