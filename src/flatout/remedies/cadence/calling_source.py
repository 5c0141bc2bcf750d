"""Reads from the source what a called function does, what becomes of its result, and whether a loop is at its end.

Everything here is by the syntax alone. What it cannot tell is None, and whoever asks then leaves the script as it is.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Calls to which a result may be handed without anything hanging on it.
_SHOWS = (
    "print", "log", "info", "debug", "warning", "add_scalar", "add_scalars", "write", "format", "set_postfix",
    "set_description", "update", "str", "round", "float",
)  # fmt: skip
# Calls that make a function more than an evaluation.
_TRAINS = {"backward": "trains", "save": "saves", "state_dict": "saves"}


@cache
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def body_of(code: CodeType) -> Function | ast.Module | None:
    """The syntax that this code was made of."""
    tree = _tree(code.co_filename)
    if tree is None or not tree.body:
        return None
    if code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name == code.co_name:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def goes_through_data(code: CodeType) -> bool:
    body = body_of(code)
    return body is not None and any(isinstance(node, ast.For | ast.comprehension) for node in ast.walk(body))


def does_more(code: CodeType) -> str | None:
    """What a function does besides evaluating, in a word."""
    body = body_of(code)
    for node in ast.walk(body) if body is not None else ():
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            if name in _TRAINS:
                return _TRAINS[name]
            if name == "step":
                return "steps an optimizer or a schedule"
    return None


def leaves_behind(code: CodeType) -> str | None:
    """What a function sets that is there when it has returned: an attribute, an entry, a name of others."""
    body = body_of(code)
    nodes = list(ast.walk(body)) if body is not None else []
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            return f"`{node.names[0]}`"
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if not (isinstance(root, ast.Name) and root.id in own):
                return _text(node)
    return None


def use_of_result(frame: FrameType, name: str) -> str | None:
    """What the caller does with what `name(…)` on its present line returns; None if it only shows it."""
    body = body_of(frame.f_code)
    if body is None:
        return "does something that cannot be read"
    calls = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and _last_name(node.func) == name
        and node.lineno <= (frame.f_lineno or 0) <= (node.end_lineno or node.lineno)
    ]
    statements = [_statement_of(body, call) for call in calls]
    if not calls:
        return "calls it by another name"
    for call, statement in zip(calls, statements, strict=True):
        if isinstance(statement, ast.Expr) and (statement.value is call or _is_shown(statement, call)):
            continue
        if not isinstance(statement, ast.Assign):
            return f"uses its result: {_text(statement)}"
        used = _use_of_names(body, statement)
        if used is not None:
            return f"uses its result: {used}"
    return None


def _use_of_names(body: ast.AST, assignment: ast.Assign) -> str | None:
    names = {node.id for target in assignment.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    if not all(isinstance(target, ast.Name | ast.Tuple | ast.List) for target in assignment.targets):
        return _text(assignment)
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            statement = _statement_of(body, node)
            if not isinstance(statement, ast.Expr) or not _is_shown(statement, node):
                return _text(statement)
    return None


def _is_shown(statement: ast.Expr, node: ast.AST) -> bool:
    """Whether the statement is a call that shows it, and nothing on the way decides anything by it."""
    call = statement.value
    if not isinstance(call, ast.Call) or _last_name(call.func) not in _SHOWS:
        return False
    return not any(
        isinstance(one, ast.Compare | ast.IfExp | ast.BoolOp | ast.NamedExpr)
        and any(inner is node for inner in ast.walk(one))
        for one in ast.walk(call)
    )


def _statement_of(body: ast.AST, node: ast.AST) -> ast.stmt | None:
    """The innermost statement; of a loop or a condition, the part that is no block counts as its own."""
    found = None
    for one in ast.walk(body):
        if isinstance(one, ast.stmt) and any(inner is node for part in _own_parts(one) for inner in ast.walk(part)):
            found = one
    return found


def _own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(statement):
        if name not in ("body", "orelse", "finalbody", "handlers"):
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def loop_now(frame: FrameType) -> tuple[int, int] | None:
    """Of the innermost loop with a known end around the present line: how far it is, and how far it goes."""
    body, line = body_of(frame.f_code), frame.f_lineno or 0
    loops = [
        node
        for node in (ast.walk(body) if body is not None else ())
        if isinstance(node, ast.For | ast.While) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
    ]
    for loop in sorted(loops, key=lambda loop: -loop.lineno):
        found = _turn_of(loop, frame) if isinstance(loop, ast.For) else _count_of(loop.test, frame)
        if found is not None:
            return found
    return None


def _turn_of(loop: ast.For, frame: FrameType) -> tuple[int, int] | None:
    """`for epoch in range(…)`"""
    values = _range_of(loop.iter, frame)
    now = frame.f_locals.get(loop.target.id) if isinstance(loop.target, ast.Name) else None
    return (now, values[-1]) if values and isinstance(now, int) and now in values else None


def _count_of(test: ast.expr, frame: FrameType) -> tuple[int, int] | None:
    """`while self.step < steps`"""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Lt | ast.LtE) or len(test.ops) > 1:
        return None
    numbers = _numbers([test.left, *test.comparators], frame)
    return (numbers[0], numbers[1]) if numbers is not None else None


def _range_of(node: ast.expr, frame: FrameType) -> range | None:
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = _last_name(node.func)
    if name == "tqdm":
        return _range_of(node.args[0], frame)
    numbers = _numbers(node.args, frame) if name in ("range", "trange") else None
    return range(*numbers) if numbers is not None else None


def _numbers(nodes: list[ast.expr], frame: FrameType) -> list[int] | None:
    """What these are just now; None unless all are whole numbers that can be read off without calling anything."""
    if not all(map(_is_plain, nodes)):
        return None
    try:
        found = [_value(node, frame) for node in nodes]
    except Exception:  # whatever a name of the script may raise
        return None
    return found if all(isinstance(one, int) for one in found) else None


def _is_plain(node: ast.expr) -> bool:
    allowed = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.operator, ast.expr_context, ast.Subscript)
    return all(isinstance(one, allowed) for one in ast.walk(node))


def _value(node: ast.expr, frame: FrameType) -> Any:
    return eval(compile(ast.Expression(node), "<range>", "eval"), frame.f_globals, dict(frame.f_locals))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST | None) -> str:
    words = ast.unparse(node).splitlines()[0] if node is not None else "?"
    return f"`{words[:60]}`"
