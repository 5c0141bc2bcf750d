"""Modules that one sampled step calls again and again while their input grows: a sequence computed from its start for
each of its elements.

Only shapes are looked at, where in memory the input begins, and its version. No tensor is kept, and no module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any, Protocol

# So often in a row an input has to be longer by one element, or be more of the same tensor: lengths of batches drawn at
# random do not do that, and pyramids double or halve.
_GROWTHS = 6
# By more than one element the sizes of buckets grow as well. Those are other tensors, never so many in a row, and
# the first is short.
_MANY_GROWTHS, _TIMES = 12, 2
_MOST_SERIES = 1000  # of modules, by the line that calls them
_MOST_LENGTHS = 20_000  # that are remembered in a step


# A line of the user's code, as it is known for calls of modules.
Line = tuple[int, int, bool]


class Call(Protocol):
    """Of a module: where, from which node it made to which, and how long it took."""

    key: Line
    module: str
    first: int
    last: int
    forward_s: float


@dataclass(frozen=True, slots=True)
class Input:
    """The first tensor that a module is called with."""

    shape: tuple[int, ...]
    start: int  # where it begins in memory; 0: not known
    version: int | None  # of its values: what shares them has the same


@dataclass(slots=True)
class _Rise:
    """Calls in a row, each with an input that is longer than the one before by the same amount."""

    calls: list[tuple[Call, int]]  # with the length of the input
    dimension: int = -1
    by: int = 0
    is_one_tensor: bool = True  # every input begins where the one before does
    is_known: bool = True  # so it is, and nothing was written to it meanwhile: all of it was there at the first call

    @property
    def is_long(self) -> bool:
        growths, first, last = len(self.calls) - 1, self.calls[0][1], self.calls[-1][1]
        if self.by == 1 or self.is_one_tensor:
            return growths >= _GROWTHS
        return growths >= _MANY_GROWTHS and last >= _TIMES * first


@dataclass(slots=True, eq=False)
class Series:
    """The calls of one module in one line, within the same calls of others."""

    key: Line
    module: str
    within: Series | None
    rises: list[_Rise] = field(default_factory=list)  # that are long
    nodes: int = 0  # that backward ran
    backward_s: float = 0.0
    last_input: Input | None = None
    rise: _Rise | None = None  # under way

    def add(self, call: Call, now: Input) -> None:
        before, self.last_input = self.last_input, now
        dimension, by = _growth(before, now)
        rise = self.rise
        if rise is None or before is None or not by:
            self._begin(_Rise([(call, 0)]))  # a length matters from the second call on
            return
        if (rise.dimension, rise.by) != (dimension, by):
            rise = _Rise([(rise.calls[-1][0], before.shape[dimension])], dimension, by)
            self._begin(rise)
        rise.calls.append((call, now.shape[dimension]))
        rise.is_one_tensor = rise.is_one_tensor and bool(now.start) and now.start == before.start
        rise.is_known = rise.is_known and rise.is_one_tensor and now.version == before.version

    def close(self) -> None:
        """What comes next is another sequence."""
        self._begin(None)
        self.last_input = None

    def _begin(self, rise: _Rise | None) -> None:
        if self.rise is not None and self.rise.is_long:
            self.rises.append(self.rise)
        self.rise = rise

    @property
    def is_sure(self) -> bool:
        """Is one long already that is under way?"""
        return self.rise is not None and self.rise.is_long

    @property
    def is_outermost(self) -> bool:
        """Is it no part of other calls with growing inputs?"""
        outer = self.within
        while outer is not None and not outer.rises:
            outer = outer.within
        return outer is None

    @property
    def calls(self) -> Iterator[tuple[Call, int]]:
        return chain.from_iterable(rise.calls for rise in self.rises)

    @property
    def fixed_s(self) -> float:
        """What a call takes in forward however long its input is: where a line through short and long calls begins."""
        calls = sorted((length, max(0.0, call.forward_s)) for call, length in self.calls)
        half = len(calls) // 2
        (short, short_s), (long, long_s) = _middle(calls[:half]), _middle(calls[half:])
        if long <= short:
            return 0.0
        per_element_s = max(0.0, (long_s - short_s) / (long - short))
        return max(0.0, short_s - per_element_s * short)


class GrowingInputs:
    """Those of one step."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._series: dict[tuple[int, Line, Series | None], Series] = {}
        self._lengths = 0
        self._starts: list[int] = []
        self._ranges: list[tuple[int, Series]] = []

    def meet(self, call: Call, module: Any, local: Mapping[str, Any], within: Series | None) -> Series | None:
        """A module is called with these local variables, within a call of another."""
        found = None if self._lengths > _MOST_LENGTHS else self._input(local)
        if found is None:
            return None
        place = id(module), call.key, within
        series = self._series.get(place)
        if series is None:
            # What has no weights computes nothing of an element that could be kept: attention over keys, say.
            if len(self._series) >= _MOST_SERIES or not _has_weights(module):
                return None
            series = self._series[place] = Series(call.key, call.module, within)
        self._lengths += 1
        series.add(call, found)
        return series

    def close(self) -> None:
        """A batch has come, or a backward pass has ended: what follows is no part of the same sequence."""
        for series in self._series.values():
            series.close()

    def settle(self) -> None:
        """A backward pass begins: which nodes were made in such calls?"""
        self.close()
        ranges = sorted(
            (call.first, call.last, number)
            for number, series in enumerate(self._series.values())
            if series.rises and series.is_outermost
            for call, _ in series.calls
            if call.last > call.first
        )
        every = list(self._series.values())
        self._starts = [first for first, _, _ in ranges]
        self._ranges = [(last, every[number]) for _, last, number in ranges]

    @property
    def has_ranges(self) -> bool:
        return bool(self._starts)

    def at(self, number: int) -> Series | None:
        """The series that made the node of this number."""
        place = bisect_right(self._starts, number) - 1
        last, series = self._ranges[place] if place >= 0 else (0, None)
        return series if number < last else None

    def finish(self) -> list[Series]:
        self.close()
        return [series for series in self._series.values() if series.rises and series.is_outermost]

    def _input(self, local: Mapping[str, Any]) -> Input | None:
        """The first tensor among the positional arguments, else among the named ones that are no mask.

        A decoder with a cache is given one element and what has grown behind it, or a mask that covers all.
        """
        named = local.get("kwargs", {})
        given = chain(local.get("args", ()), (named[name] for name in named if "mask" not in name))
        leaf = next((leaf for value in given for leaf in _few_leaves(value) if isinstance(leaf, self._tensor)), None)
        if leaf is None:
            return None
        try:
            return Input(tuple(leaf.shape), leaf.data_ptr(), leaf._version)
        except (RuntimeError, NotImplementedError, AttributeError):
            return Input(tuple(leaf.shape), 0, None)  # a wrapper, or made in inference mode


def describe_series(series: Series) -> dict[str, object]:
    """All but its place, as it is written down."""
    calls, rises = list(series.calls), series.rises
    longest = max(rises, key=lambda rise: rise.calls[-1][1])
    return {
        "module": series.module,
        "sequences": len(rises),
        "calls": len(calls),
        "first_length": min(rise.calls[0][1] for rise in rises),
        "last_length": longest.calls[-1][1],
        "dimension": longest.dimension,
        "computed": sum(length for _, length in calls),
        "needed": sum(rise.calls[-1][1] for rise in rises),
        "is_known": all(rise.is_known for rise in rises),
        # One that a backward pass interrupts has no end.
        "forward_ms": round(1e3 * sum(max(0.0, call.forward_s) for call, _ in calls), 4),
        "backward_ms": round(1e3 * series.backward_s, 4),
        "fixed_ms": round(1e3 * series.fixed_s, 5),
        "nodes": series.nodes,
    }


def _growth(before: Input | None, now: Input) -> tuple[int, int]:
    """In which dimension it is longer than the one before, and by how much; by 0 where it is not, or in another too."""
    if before is None or len(before.shape) != len(now.shape):
        return -1, 0
    other = [number for number, length in enumerate(now.shape) if length != before.shape[number]]
    if len(other) != 1:
        return -1, 0
    return other[0], max(0, now.shape[other[0]] - before.shape[other[0]])


def _has_weights(module: Any) -> bool:
    """As `next(module.parameters())` tells, which costs ten times as much."""
    own = module._parameters.values()
    if any(weight is not None for weight in own):
        return True
    return any(part is not None and _has_weights(part) for part in module._modules.values())


def _middle(calls: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Of lengths and of seconds; medians, which one disturbed call does not move."""
    return median(length for length, _ in calls), median(seconds for _, seconds in calls)


def _few_leaves(value: Any) -> Iterator[Any]:
    """What is given itself, or in a list of it."""
    return iter(value[:2]) if isinstance(value, tuple | list) else iter((value,))
