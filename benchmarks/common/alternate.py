"""Arms measured in turn, round by round, so that a slow minute of the machine hits all of them alike.

Odd rounds go through the arms backwards (ABBA): a steady drift then cancels too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def order(names: Sequence[str], round_index: int) -> list[str]:
    """The arms in the order this round runs them."""
    return list(names) if round_index % 2 == 0 else list(reversed(names))


def alternate(
    names: Sequence[str], rounds: int, measure: Callable[[str, int], T], describe: Callable[[T], str]
) -> dict[str, list[T]]:
    """Call `measure(name, round)` for every arm in every round; progress goes to stderr."""
    results: dict[str, list[T]] = {name: [] for name in names}
    for round_index in range(rounds):
        for name in order(names, round_index):
            result = measure(name, round_index)
            results[name].append(result)
            print(f"round {round_index + 1}/{rounds}  {name:<16} {describe(result)}", file=sys.stderr, flush=True)
    return results
