"""Sums of results that can stay on the device until somebody reads them: `total += loss.item()` in a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.records.source import Edit
from flatout.source.code import Code
from flatout.source.edits import instead, text_at
from flatout.source.module import Function
from flatout.source.nodes import called_name, within
from flatout.source.syncs import Sync

_COUNTS = {"eq", "ne", "gt", "lt", "ge", "le", "isclose", "logical_and", "logical_or"}


def kept_on_device(sync: Sync, code: Code) -> tuple[Edit, ...] | None:
    """The read taken out of the sum, and put where the sum is read: only where all of its uses can be seen.

    Numbers and tensors both can be made a number again, so it holds for a loop without a single turn as well.
    """
    function, module = sync.region.function, sync.region.module
    statement = next((turn.statement for turn in sync.region.turns() if turn.node is sync.node), None)
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add) or not _is_plain(sync, code):
        return None
    target, kind = statement.target, _kind(sync, statement.value)
    if not isinstance(target, ast.Name) or kind is None or not _begins_with(target.id, kind, function):
        return None
    reads = _reads(target.id, function)
    each_step = {id(turn.node) for turn in sync.region.turns()}
    if reads is None or any(id(one) in each_step for one, _ in reads):
        return None
    edits = [instead(module, sync.node, _detached(sync))]
    for name, above in reads:
        if isinstance(above, ast.Call) and called_name(above) == kind and above.args == [name]:
            continue
        if text_at(module, name) != name.id or _is_labelled(name, above, sync):
            return None
        edits.append(instead(module, name, f"{kind}({name.id})"))
    return tuple(edits)


def _is_plain(sync: Sync, code: Code) -> bool:
    on_device = code.kinds.of(sync.region).of(sync.of) in ("graph", "device")
    return on_device and sync.op in ("item", "float", "int") and isinstance(sync.of, ast.expr)


def _kind(sync: Sync, value: ast.expr) -> str | None:
    """What the sum is a sum of: floats, or counts, which stay whole only if nothing is multiplied."""
    if _is_count(sync.of):
        return "int" if value is sync.node and sync.op != "float" else None
    if sync.op == "int":
        return None
    weighted = isinstance(value, ast.BinOp) and (
        (isinstance(value.op, ast.Mult | ast.Div) and value.left is sync.node)
        or (isinstance(value.op, ast.Mult) and value.right is sync.node)
    )
    return "float" if value is sync.node or weighted else None


def _is_count(node: ast.expr) -> bool:
    """`(predicted == labels).sum()`."""
    return any(
        isinstance(one, ast.Compare) or (isinstance(one, ast.Call) and called_name(one) in _COUNTS)
        for one in ast.walk(node)
    )


def _begins_with(name: str, kind: str, function: Function) -> bool:
    """Is it only ever set to a number that a sum of that kind begins with?"""
    values = function.bindings.get(name, [])
    numbers = [one.value for one in values if isinstance(one, ast.Constant) and type(one.value) in (int, float)]
    if not values or len(numbers) != len(values):
        return False
    # `total = 0` may be a sum of losses; what begins with 0.0 is no count.
    return kind == "float" or all(isinstance(one, int) for one in numbers)


def _reads(name: str, function: Function) -> list[tuple[ast.Name, ast.AST]] | None:
    """All reads of a name in its function, each with what it is part of. None where others may use it, too."""
    found: list[tuple[ast.Name, ast.AST]] = []
    for node, above in _with_parents(function.node):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return None
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        if isinstance(node.ctx, ast.Del) or isinstance(above, ast.For | ast.comprehension | ast.NamedExpr):
            return None
        if isinstance(node.ctx, ast.Load):
            found.append((node, above))
    own = {id(node) for statement in function.node.body for node in within(statement)}
    if any(id(node) not in own for node, _ in found):
        return None  # a function inside has it as well
    others = [one for one in function.module.functions if one is not function] if function.definition is None else []
    if any(name == node.id for one in others for node in ast.walk(one.node) if isinstance(node, ast.Name)):
        return None
    return found


def _with_parents(top: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    stack = [top]
    while stack:
        above = stack.pop()
        for node in ast.iter_child_nodes(above):
            yield node, above
            stack.append(node)


def _is_labelled(name: ast.Name, above: ast.AST, sync: Sync) -> bool:
    """`f"{total=}"` shows the text of what it prints."""
    line = sync.region.module.lines[(name.end_lineno or name.lineno) - 1].encode()
    return isinstance(above, ast.FormattedValue) and line[name.end_col_offset or 0 :].lstrip().startswith(b"=")


def _detached(sync: Sync) -> str:
    of, text = sync.of, text_at(sync.region.module, sync.of)
    if (isinstance(of, ast.Call) and called_name(of) == "detach") or (
        isinstance(of, ast.Attribute) and of.attr == "data"
    ):
        return text
    return (
        f"{text}.detach()"
        if isinstance(of, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        else f"({text}).detach()"
    )
