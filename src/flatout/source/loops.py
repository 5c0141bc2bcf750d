"""Loops: what those of a file iterate over, and which loops are around a node of a training."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from flatout.source.code import Code
from flatout.source.syntax.module import Function, parse_text
from flatout.source.syntax.nodes import (
    DEFINITIONS,
    LOOPS,
    all_arguments,
    bound_names,
    called_name,
    names_in,
    root_name,
    targets_of,
    walk_scope,
)
from flatout.source.training.regions import Loop

Kind = Literal["elements", "samples", "parameters", "other"]

_STEP_CALLS = {"backward", "step", "zero_grad"}
_PARAMETERS = re.compile(r"\b(named_)?parameters\(|\.params\b|\bparams\b|\.grad\b")
# Iterated in large pieces: each iteration is real work.
_HEAVY = re.compile(r"loader|epoch|layer|block|module|stage|children|chunk|split|level|scale|steps|batches", re.I)
_LOSS = re.compile(r"loss|crit", re.I)
_GATHERS = {
    "detach", "flatten", "view", "view_as", "reshape", "numel", "size", "unsqueeze", "squeeze", "zip", "enumerate",
    "range", "len", "parameters", "named_parameters", "values", "items", "zeros_like", "strip", "split", "str",
}  # fmt: skip
_LIGHT_OWNERS = {"torch", "F", "np", "numpy", "math", "nn", "functional", "random"}


@dataclass(frozen=True, slots=True)
class TextLoop:
    """A loop or comprehension by its lines. `calls` are the functions of the same file that it calls."""

    first: int
    last: int
    kind: Kind
    trains: bool
    # Each iteration calls a model or another module, which may be real work.
    heavy: bool
    # Each iteration adds to one result, such as a summed loss: autograd then goes back through all iterations.
    sums_up: bool
    # Each iteration writes a part of a result: `out[i] = x[near[i]].mean(0)`.
    fills: bool
    calls: frozenset[str]

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


@lru_cache(maxsize=64)
def find_text_loops(text: str) -> tuple[TextLoop, ...]:
    """All loops and comprehensions of a file, outer before inner; none if it is not Python."""
    tree = parse_text(text).tree
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    imported = {
        name.asname or name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    return tuple(_loop(node, defined, defined | imported) for node in ast.walk(tree) if _is_loop(node))


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp)


def _loop(node: ast.AST, defined: set[str], light: set[str]) -> TextLoop:
    inside = list(walk_scope(node))
    calls = [inner for inner in inside if isinstance(inner, ast.Call)]
    names = {called_name(call) for call in calls}
    trains = any(isinstance(call.func, ast.Attribute) and call.func.attr in _STEP_CALLS for call in calls)
    nested = any(_is_loop(part) for part in inside if part is not node)
    heavy = any(_is_heavy(call, light) for call in calls)
    return TextLoop(
        first=node.lineno,  # type: ignore[attr-defined]
        last=node.end_lineno,  # type: ignore[attr-defined]
        kind=_kind(node, inside, nested, heavy),
        trains=trains,
        heavy=heavy,
        sums_up=_sums_up(inside, calls),
        fills=any(
            isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Subscript)
            and isinstance(part.value, ast.Call)
            for part in inside
        ),
        calls=frozenset(names & defined),
    )


def _kind(node: ast.AST, inside: list[ast.AST], nested: bool, heavy: bool) -> Kind:
    # What it binds, and what it iterates over.
    parts = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
    iterations: list[tuple[ast.expr, ast.expr]] = [(part.target, part.iter) for part in parts]
    over = " ".join(ast.unparse(iterated) for _, iterated in iterations)
    targets = {name for target, _ in iterations for name in names_in(target)}
    if isinstance(node, ast.While) or not targets or _only_gathers(node, inside):
        return "other"
    if _PARAMETERS.search(over):
        return "parameters"
    functions = [part.func for part in inside if isinstance(part, ast.Call)]
    called = {root_name(func) for func in functions if isinstance(func, ast.Name | ast.Subscript)}
    if called & targets or _HEAVY.search(over) or _is_recurrent(inside):
        return "other"
    picks = _indexes_by(inside, targets)
    if not heavy and (picks or nested or _goes_over_values(iterations)):
        return "elements" if nested else "samples"
    return "samples" if picks else "other"


def _only_gathers(node: ast.AST, inside: list[ast.AST]) -> bool:
    """Does a comprehension only list tensors or views of them, for one operation on all?"""
    if isinstance(node, ast.For):
        return False
    works = (part for part in inside if isinstance(part, ast.Call | ast.BinOp))
    return all(isinstance(call, ast.Call) and called_name(call) in _GATHERS for call in works)


def _indexes_by(inside: list[ast.AST], targets: set[str]) -> bool:
    """Is something indexed by the loop's own variable: `x[i]`, `x[i:i + 1]`, `x[b, y]`?"""
    for node in inside:
        if not isinstance(node, ast.Subscript):
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, ast.Slice):
                low, high = (ast.unparse(end) if end is not None else "" for end in (part.lower, part.upper))
                if low in targets and high == f"{low} + 1":
                    return True
            elif names_in(part) & targets:
                return True
    return False


def _goes_over_values(iterations: list[tuple[ast.expr, ast.expr]]) -> bool:
    """`for a, b in zip(pred, target)`, `for v in values`, `.tolist()`: one value or row at a time."""
    for _, iterated in iterations:
        text = ast.unparse(iterated)
        if text.startswith(("zip(", "enumerate(")) or text.endswith(".tolist()") or isinstance(iterated, ast.Name):
            return True
    return False


def _is_recurrent(inside: list[ast.AST]) -> bool:
    """`h = cell(x[t], h)`: each iteration needs the one before, so they cannot be vectorized."""
    for node in inside:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = {name for target in node.targets for name in names_in(target)}
            taken = {name for value in all_arguments(node.value) for name in names_in(value)}
            stacked = isinstance(node.value.func, ast.Attribute) and root_name(node.value.func) in _LIGHT_OWNERS
            if made & taken and not stacked:
                return True
    return False


def _sums_up(inside: list[ast.AST], calls: list[ast.Call]) -> bool:
    names = {called_name(call) for call in calls}
    plain = {call.func.id for call in calls if isinstance(call.func, ast.Name)} & {"float", "int"}
    if plain or names & {"item", "tolist", "detach"}:
        return False  # plain numbers, without autograd
    for node in inside:
        target = next(iter(targets_of(node)), None)
        if isinstance(target, ast.Name) and (
            isinstance(node, ast.AugAssign)
            or (
                isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and target.id in names_in(node.value)
            )
        ):
            return True
    return "append" in names


def _is_heavy(call: ast.Call, light: set[str]) -> bool:
    """Is it a call of a model or module held in a variable or an attribute of `self`?"""
    func = call.func
    if isinstance(func, ast.Name):
        known = func.id in light or hasattr(builtins, func.id) or bool(_LOSS.search(func.id))
        return not known
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return func.attr not in light and not _LOSS.search(func.attr)
    return False


# Loops around and inside a training.


def enclosing_loops(node: ast.AST, function: Function) -> list[Loop]:
    """The loops of a function around a node, outer first."""
    found: list[Loop] = []
    for parent, child in function.module.ancestors(node):
        if parent is function.node:
            return found[::-1]
        if isinstance(parent, DEFINITIONS):
            break
        if isinstance(parent, LOOPS) and any(child is statement for statement in parent.body):
            found.append(parent)
    return []


def repeats_training(loop: Loop, function: Function, code: Code) -> bool:
    """Is it a training loop, or does it contain or call one?"""
    loops = {id(training_loop): of for training_loop, of in code.training.loops}
    if id(loop) in loops:
        return True
    holders = {id(of) for of in loops.values()}
    for node in walk_scope(loop):
        if id(node) in loops:
            return True
        if isinstance(node, ast.Call) and any(id(f) in holders for f in code.project.resolve(node, function)):
            return True
    return False


def names_changed_in(loops: Sequence[Loop]) -> set[str]:
    """Names that change in each iteration: loop variables, counters, and names computed from those."""
    names: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.For | ast.AsyncFor):
            names |= bound_names(loop.target)
        for _ in range(2):
            for node in walk_scope(loop):
                if isinstance(node, ast.AugAssign):
                    names |= bound_names(node.target)
                elif isinstance(node, ast.Assign) and names_in(node.value) & names:
                    for target in node.targets:
                        names |= bound_names(target)
                elif isinstance(node, ast.For | ast.AsyncFor) and node is not loop and names_in(node.iter) & names:
                    names |= bound_names(node.target)
    return names
