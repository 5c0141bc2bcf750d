"""Loops around and inside a training: what they repeat, and what changes from turn to turn."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from flatout.source.code import Code
from flatout.source.loops import loops_in
from flatout.source.module import Function
from flatout.source.nodes import LOOPS, bound_names, called_name, dotted, names_in, within
from flatout.source.training import Loop, Region


def loops_around(node: ast.AST, function: Function) -> list[Loop]:
    """The loops of the function that a node lies in, outer first."""
    found: list[Loop] = []
    for one in (n for statement in function.node.body for n in within(statement)):
        if isinstance(one, LOOPS) and any(inner is node for part in one.body for inner in within(part)):
            found.append(one)
    return found


def repeats_training(loop: Loop, function: Function, code: Code) -> bool:
    """Does it lead through a training loop, or is it one?"""
    loops = {id(one): of for one, of in code.training.loops}
    if id(loop) in loops:
        return True
    holders = {id(of) for of in loops.values()}
    for one in within(loop):
        if id(one) in loops:
            return True
        if isinstance(one, ast.Call) and any(id(f) in holders for f in code.project.resolve(one, function)):
            return True
    return False


def changing_in(loops: Sequence[Loop]) -> set[str]:
    """Names that get another value at each turn: loop variables, counters, and what is made of those."""
    names: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.For | ast.AsyncFor):
            names |= bound_names(loop.target)
        for _ in range(2):
            for one in within(loop):
                if isinstance(one, ast.AugAssign):
                    names |= bound_names(one.target)
                elif isinstance(one, ast.Assign) and names_in(one.value) & names:
                    for target in one.targets:
                        names |= bound_names(target)
                elif isinstance(one, ast.For | ast.AsyncFor) and one is not loop and names_in(one.iter) & names:
                    names |= bound_names(one.target)
    return names


def drawn_by_hand(code: Code) -> Iterator[tuple[Region, ast.For]]:
    """Nested loops over indices in a step that pick or write a tensor's elements by their variables; the outermost."""
    seen: set[int] = set()
    for region in code.training.regions:
        for turn in region.turns():
            outer = [one for one in turn.loops if isinstance(one, ast.For) and _is_counted(one)]
            if len(outer) < 2 or not isinstance(turn.node, ast.Subscript) or id(outer[0]) in seen:
                continue
            # By the innermost variable, in a loop that calls nothing heavier: each turn is one element's.
            if not bound_names(outer[-1].target) & names_in(turn.node.slice) or not _is_over_elements(outer[0], region):
                continue
            # An array in host memory, or a list: Python goes through it as fast as through anything.
            kind = code.kinds.of(region).of(turn.node.value)
            if kind in ("graph", "device") or _is_torch_made(turn.node.value, region):
                seen.add(id(outer[0]))
                yield region, outer[0]


def _is_over_elements(loop: ast.For, region: Region) -> bool:
    return any(one.first == loop.lineno and one.kind == "elements" for one in loops_in(region.module.text))


def _is_torch_made(node: ast.expr, region: Region) -> bool:
    """`out = torch.zeros(…)`: a tensor, wherever it lies."""
    made = region.function.bindings.get(dotted(node), [])
    return any(isinstance(one, ast.Call) and dotted(one.func).startswith("torch.") for one in made)


def _is_counted(loop: ast.For) -> bool:
    return isinstance(loop.iter, ast.Call) and called_name(loop.iter) in ("range", "enumerate", "product")
