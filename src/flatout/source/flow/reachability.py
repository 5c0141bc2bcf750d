"""Whether a statement runs when a script is started with its defaults: yes, no, or not known."""

from __future__ import annotations

import ast
import re

from flatout.source.flow.guards import is_evaluation
from flatout.source.flow.values import Values
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import FEW_HOPS, called_name, children, dotted_name

# Tests that hold for the process in question: it has a GPU, and it is the one that is looked at.
_HELD = re.compile(r"cuda|gpu|rank|is_main|distributed|nccl|torch\.version", re.I)
_STARTED = re.compile(
    r"^(main|train|fit|run|cli|worker|launch)|^(setup|prepare|configure|__init__)$|main$|_worker$", re.I
)


def runs_by_default(node: ast.AST, function: Function, project: Project, values: Values, depth: int = 0) -> bool:
    """Certainly, as far as tests around it and around the calls that lead to it can be told."""
    for test, expected in enclosing_tests(node, function):
        text = ast.unparse(test)
        is_held = bool(_HELD.search(text)) and expected is not text.startswith("not ")
        if not is_held and evaluate_test(test, function, values) is not expected:
            return False
    if function.definition is None:
        return True
    if is_evaluation(function.name):
        return False  # it does not train
    if depth >= FEW_HOPS:
        return False
    callers = project.callers(function)
    if not callers:
        return bool(_STARTED.search(function.name)) or _is_started_by_decorator(function)
    return any(
        runs_by_default(call, inside, project, values, depth + 1) for call, inside in callers if inside is not function
    )


def enclosing_tests(node: ast.AST, function: Function) -> list[tuple[ast.expr, bool]]:
    """Tests of the `if`s that a node lies in, each with what it must be for the node to run."""
    stack: list[tuple[ast.AST, list[tuple[ast.expr, bool]]]] = [(part, []) for part in function.node.body]
    while stack:
        current, around = stack.pop()
        if current is node:
            return around
        if isinstance(current, ast.If) and not _is_main(current.test):
            stack += [(child, [*around, (current.test, True)]) for child in current.body]
            stack += [(child, [*around, (current.test, False)]) for child in current.orelse]
            stack.append((current.test, around))
        else:
            stack += [(child, around) for child in children(current)]
    return []


def evaluate_test(test: ast.expr, function: Function, values: Values) -> bool | None:
    """Whether a test holds for the values that are known to reach it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = evaluate_test(test.operand, function, values)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [evaluate_test(operand, function, values) for operand in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _of_comparison(test, function, values)
    if isinstance(test, ast.Call) and dotted_name(test.func).endswith("cuda.is_available"):
        return True
    if isinstance(test, ast.Call) and "version" in called_name(test):
        return True  # of what is installed: new enough
    known = values.of(test, function)
    return None if known is None else bool(known.value)


def _of_comparison(test: ast.Compare, function: Function, values: Values) -> bool | None:
    left, right = values.of(test.left, function), values.of(test.comparators[0], function)
    if left is None or right is None:
        return None
    mine, other, op = left.value, right.value, test.ops[0]
    if isinstance(op, ast.Is | ast.Eq):
        return bool(mine == other)
    if isinstance(op, ast.IsNot | ast.NotEq):
        return bool(mine != other)
    if not isinstance(mine, int | float) or not isinstance(other, int | float):
        return None
    if isinstance(op, ast.Gt | ast.GtE):
        return mine > other or (isinstance(op, ast.GtE) and mine == other)
    if isinstance(op, ast.Lt | ast.LtE):
        return mine < other or (isinstance(op, ast.LtE) and mine == other)
    return None


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and dotted_name(test.left) == "__name__"


def _is_started_by_decorator(function: Function) -> bool:
    """Started by a framework for command lines: `@hydra.main()`, `@click.command()`."""
    plain = function.definition
    return plain is not None and any(
        isinstance(call, ast.Call) and called_name(call) in ("main", "command") for call in plain.decorator_list
    )
