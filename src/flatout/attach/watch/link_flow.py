"""Whether somebody uses what gradients reach behind a call whose own weights nobody trains.

A frozen part of a model has to pass gradients on where what comes before it is trained. Where nothing before it is, all
of its backward is for nothing: the lower blocks of an encoder that are only left out of the optimizer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from .link_calls import UNHELD, Call, ModuleCalls, Weight, is_in

_MOST_LOOSE = 16  # weights that are looked at again at the end of the step


class GradientFlow:
    """Of one step."""

    def __init__(self, torch: Any) -> None:
        self._parameter = torch.nn.Parameter
        self._goes_on: dict[Call, bool] = {}
        # Weights behind these calls that no optimizer has, and the passes that add to their gradients.
        self._loose: dict[int, tuple[Weight, int]] = {}

    def look(self, nodes: Sequence[tuple[int, Any]], calls: ModuleCalls) -> None:
        """`nodes`: of a backward pass that is about to begin, the last made first."""
        unheld = [call for call in calls.found if call.kind == UNHELD and call.flows_through]
        if not unheld:
            return
        used: set[Any] = set()
        used_numbers: list[int] = []
        numbers: list[int] = []
        loose: dict[int, Any] = {}
        for number, node in reversed(nodes):
            numbers.append(number)
            for following, _ in node.next_functions:
                variable = getattr(following, "variable", None)
                if variable is not None and type(variable) is self._parameter and not is_in(calls.held, variable):
                    loose[id(variable)] = variable
                elif variable is not None or following in used:
                    used.add(node)
                    used_numbers.append(number)
                    break
        for call in unheld:
            if _within(numbers, call):
                self._goes_on[call] = self._goes_on.get(call, False) or _within(used_numbers, call)
        for known, variable in list(loose.items())[:_MOST_LOOSE]:
            weight, passes = self._loose.get(known, (None, 0))
            self._loose[known] = weight or Weight(variable), passes + 1

    def finish(self, calls: ModuleCalls) -> bool:
        """The step has ended: say of its calls whether gradients that somebody uses go on through them.

        Returns whether that is known; else `finish_later` may say it.
        """
        for weight, passes in self._loose.values():
            before = calls.weights.setdefault(weight.number, weight)
            if not weight.is_unused(calls.held, passes, None if before is weight else before):
                return False
        self._say()
        return True

    def finish_later(self, calls: ModuleCalls) -> None:
        if all(weight.is_unchanged(calls.held) for weight, _ in self._loose.values()):
            self._say()

    def _say(self) -> None:
        for call, goes_on in self._goes_on.items():
            call.flows_through = goes_on


def _within(numbers: Sequence[int], call: Call) -> bool:
    place = bisect_left(numbers, call.first)
    return place < len(numbers) and numbers[place] < call.last
