"""Times that a training step measures itself: from one reading of the clock to the next, within one iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.syntax.module import Module
from flatout.source.syntax.nodes import LOOPS, dotted_name, is_call, walk_body, walk_scope
from flatout.source.training.regions import Region

_CLOCKS = {
    "time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "monotonic_ns", "default_timer", "timer", "now",
}  # fmt: skip
_MODULES = {"time", "timeit", "datetime"}


@dataclass(frozen=True, slots=True)
class Interval:
    """`begins` stores a reading of the clock, `ends` is the difference, `inside` are the nodes run between them."""

    region: Region
    begins: ast.stmt
    ends: ast.BinOp
    inside: tuple[ast.AST, ...]
    # What the difference is called: its variable, a meter, a key, a text beside it.
    name: str


@dataclass(frozen=True, slots=True)
class _Reading:
    statement: ast.Assign
    first: int
    behind: int


class _Body:
    """The nodes of a region in the order of the text, and where names get readings of the clock."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.nodes = list(walk_body(region.body))
        self.readings: dict[str, list[_Reading]] = {}
        self.others: dict[str, list[int]] = {}
        for place, inner in enumerate(self.nodes):
            if isinstance(inner, ast.Assign):
                self._note(inner, place)

    def _note(self, assign: ast.Assign, place: int) -> None:
        size = sum(1 for _ in walk_scope(assign))
        for target in assign.targets:
            if name := dotted_name(target):
                if is_clock(assign.value, self.region.module):
                    self.readings.setdefault(name, []).append(_Reading(assign, place, place + size))
                else:
                    self.others.setdefault(name, []).append(place)

    def reading_before(self, name: str, place: int) -> _Reading | None:
        """The reading that a name holds here, if it was made in this iteration."""
        known = [reading for reading in self.readings.get(name, ()) if reading.first < place]
        if not known or any(known[-1].first < other < place for other in self.others.get(name, ())):
            return None
        return known[-1]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        return (parent for parent, _ in self.region.ancestors(node))


def find_intervals(region: Region) -> Iterator[Interval]:
    """Intervals that begin and end in each iteration of the region; the end may be used seldom."""
    if not any(word in region.module.text for word in _MODULES):
        return
    body = _Body(region)
    if not body.readings:
        return
    each_time = {id(point.node) for point in region.main_path()}
    for place, node in enumerate(body.nodes):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
            continue
        begun = body.reading_before(dotted_name(node.right), place)
        if begun is None or id(begun.statement) not in each_time:
            continue
        until = _second_reading(node, place, body)
        if until is None or begun.behind > until or not _are_level(begun.statement, node, body):
            continue
        if any(isinstance(part, ast.Compare | ast.If | ast.While) for part in _to_statement(node, body)):
            continue  # compared with a limit, not a measurement
        # Calls that get the difference as an argument run after it.
        around = {id(child) for child in body.above(node)}
        inside = tuple(inner for inner in body.nodes[begun.behind : until] if id(inner) not in around)
        yield Interval(region, begun.statement, node, inside, _interval_name(node, body))


def is_clock(node: ast.AST, module: Module) -> bool:
    return is_call(node, *_CLOCKS) and module.library_of(dotted_name(node.func)) in _MODULES


def _second_reading(node: ast.BinOp, place: int, body: _Body) -> int | None:
    """Where the clock is read again: in the difference itself, or before it into a name."""
    # `spent + end - begin` parses as `(spent + end) - begin`.
    summed = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Add)
    later = node.left.right if summed and isinstance(node.left, ast.BinOp) else node.left
    if is_clock(later, body.region.module):
        return place
    read = body.reading_before(dotted_name(later), place)
    return None if read is None else read.first


def _are_level(statement: ast.stmt, node: ast.AST, body: _Body) -> bool:
    """Is the second reading in the same block as the first or deeper, with no loop between them?"""
    around = next(body.above(statement), None)
    for inner in body.above(node):
        if inner is around:
            return True
        if isinstance(inner, LOOPS):
            return False
    return around is None


def _to_statement(node: ast.AST, body: _Body) -> Iterator[ast.AST]:
    for part in body.above(node):
        yield part
        if isinstance(part, ast.stmt):
            return


def _interval_name(node: ast.AST, body: _Body) -> str:
    words: list[str] = []
    below: ast.AST = node
    for part in _to_statement(node, body):
        if isinstance(part, ast.Assign):
            words += [_spelling(target) for target in part.targets]
        elif isinstance(part, ast.AugAssign | ast.AnnAssign):
            words.append(_spelling(part.target))
        elif isinstance(part, ast.keyword):
            words.append(part.arg or "")
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            words.append(_spelling(part.func.value))
            words += [str(given.value) for given in part.args[:1] if isinstance(given, ast.Constant)]
        elif isinstance(part, ast.Dict):
            keys = zip(part.keys, part.values, strict=True)
            words += [str(getattr(key, "value", "")) for key, value in keys if value is below]
        below = part
    return " ".join(words)


def _spelling(node: ast.expr) -> str:
    """`meters data` of `meters["data"]`."""
    if isinstance(node, ast.Subscript):
        key = str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
        return f"{_spelling(node.value)} {key}"
    return dotted_name(node)
