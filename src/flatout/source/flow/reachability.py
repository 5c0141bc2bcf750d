"""Reachability: does a statement run when a script is started with its defaults?"""

from __future__ import annotations

import ast
import operator
import re

from flatout.source.flow.guards import is_evaluation
from flatout.source.flow.values import Values
from flatout.source.project.project import Project
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import FEW_HOPS, called_name, dotted_name, is_call

# Tests that hold for the process that is looked at: it has a GPU, and it is the main one.
_HELD = re.compile(r"cuda|gpu|rank|is_main|distributed|nccl|torch\.version", re.I)
_ORDERS = {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le}
_STARTED = re.compile(
    r"^(main|train|fit|run|cli|worker|launch)|^(setup|prepare|configure|__init__)$|main$|_worker$", re.I
)


def runs_by_default(node: ast.AST, function: Function, project: Project, values: Values, depth: int = 0) -> bool:
    """Does it certainly run, by the tests around it and around the calls that lead to it?"""
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
        # Or by a command line framework: `@hydra.main()`, `@click.command()`.
        decorators = function.definition.decorator_list
        return bool(_STARTED.search(function.name)) or any(is_call(call, "main", "command") for call in decorators)
    return any(
        runs_by_default(call, inside, project, values, depth + 1) for call, inside in callers if inside is not function
    )


def enclosing_tests(node: ast.AST, function: Function) -> list[tuple[ast.expr, bool]]:
    """Tests of the `if` statements around a node, outer first, each with the value it must have for the node to run."""
    found = []
    for parent, child in function.module.ancestors(node):
        if parent is function.node:
            break
        if isinstance(parent, ast.If) and child is not parent.test:
            if isinstance(parent.test, ast.Compare) and dotted_name(parent.test.left) == "__name__":
                continue
            found.append((parent.test, any(child is statement for statement in parent.body)))
    return found[::-1]


def evaluate_test(test: ast.expr, function: Function, values: Values) -> bool | None:
    """The value of a test, where the values in it are known."""
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
        return _evaluate_comparison(test, function, values)
    if isinstance(test, ast.Call) and dotted_name(test.func).endswith("cuda.is_available"):
        return True
    if isinstance(test, ast.Call) and "version" in called_name(test):
        return True  # installed versions are taken for new enough
    known = values.of(test, function)
    return None if known is None else bool(known.value)


def _evaluate_comparison(test: ast.Compare, function: Function, values: Values) -> bool | None:
    left, right = values.of(test.left, function), values.of(test.comparators[0], function)
    if left is None or right is None:
        return None
    left_value, other, op = left.value, right.value, test.ops[0]
    if isinstance(op, ast.Is | ast.Eq):
        return bool(left_value == other)
    if isinstance(op, ast.IsNot | ast.NotEq):
        return bool(left_value != other)
    if not isinstance(left_value, int | float) or not isinstance(other, int | float):
        return None
    compare = _ORDERS.get(type(op))
    return None if compare is None else bool(compare(left_value, other))
