"""Parts of one tensor that a step picks one by one, and what that takes in backward.

`x[:, t]` in a loop: the backward of each pick makes a tensor as large as all of `x`, zero but for the part, and these
are added up. Taken apart at once, by `unbind`, `split` or `chunk`, all parts have one gradient together. Only shapes of
the graph are read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .link_calls import Key

_PICKS = ("SelectBackward", "SliceBackward")
_LEAST_PICKS = 4  # of one tensor, each in a turn of its own
# Elements that are filled for nothing: for fewer, the hook takes longer.
_LEAST_FILLED = 1e5


@dataclass(slots=True, eq=False)
class Picks:
    """Of one tensor, over one backward pass."""

    key: Key  # the line that picks first
    elements: int  # of the tensor
    count: int = 0
    picked: int = 0  # elements
    backward_s: float = 0.0
    turns: set[int] = field(default_factory=set)

    @property
    def is_worth_it(self) -> bool:
        """One call of native code, such as a recurrent layer, may pick too: that is no loop of the script."""
        return len(self.turns) >= _LEAST_PICKS and self.count * self.elements - self.picked >= _LEAST_FILLED


class PickedParts:
    """Those of one step."""

    def __init__(self) -> None:
        self.seen: list[Picks] = []

    def find(
        self, nodes: Sequence[tuple[int, Any]], maker_of: Callable[[int], Key], turn_of: Callable[[int], int]
    ) -> dict[int, Picks]:
        """By the number of each such node. `nodes`: the last made first. `turn_of`: which turn of a line made it."""
        picks: dict[tuple[int, int], Picks] = {}
        numbers: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, node in reversed(nodes):
            if not node.name().startswith(_PICKS):
                continue
            ((source, place),) = node.next_functions
            sizes = getattr(node, "_saved_self_sym_sizes", None)
            if source is None or sizes is None:
                continue
            of = id(source), place
            if of not in picks:
                picks[of] = Picks(maker_of(number), math.prod(map(int, sizes)))
            picks[of].count += 1
            picks[of].turns.add(turn_of(number))
            picks[of].picked += math.prod(node._input_metadata[0].shape)
            numbers[of].append(number)
        found = {number: picks[of] for of in picks if picks[of].is_worth_it for number in numbers[of]}
        self.seen.extend(each for each in picks.values() if each.is_worth_it)
        return found


def describe_picks(picks: Picks) -> dict[str, object]:
    return {
        "elements": picks.elements,
        "count": picks.count,
        "picked": picks.picked,
        "backward_ms": round(1e3 * picks.backward_s, 4),
    }
