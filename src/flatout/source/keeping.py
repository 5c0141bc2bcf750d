"""What outlives a training step together with its graph: lists and sums that begin before the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.source.code import Code
from flatout.source.nodes import bound_names, called_name, dotted, parameters, text_of, within
from flatout.source.training import Region


@dataclass(frozen=True, slots=True)
class Kept:
    """`holder` is what keeps it."""

    region: Region
    node: ast.AST
    holder: str
    what: str
    value: ast.expr


def kept_in(code: Code) -> Iterator[Kept]:
    """Only where it can be seen when the holder begins: before the loop, or outside of a function that a step calls."""
    for region in code.training.regions:
        tensors = code.kinds.of(region)
        losses = _backward_of(region)
        begun = _begun_in(region)
        for turn in region.turns():
            found = _keeps(turn.node)
            if found is None:
                continue
            holder, value = found
            if dotted(value) not in losses or tensors.of(value) == "host" or tensors.of(value) == "device":
                continue  # only what is certain: the very loss that backward starts from
            if holder.split(".")[0] in begun or holder in begun or holder in losses or not _outlives(holder, region):
                continue
            yield Kept(region, turn.node, holder, text_of(value, 30), value)


def _outlives(holder: str, region: Region) -> bool:
    """In a function that the step calls: an attribute of its object, or something of the module."""
    root, plain = holder.split(".")[0], region.function.definition
    if region.loop is not None or plain is None or (root == "self" and "." in holder):
        return True
    return root not in region.function.bindings and root not in parameters(plain)


def _keeps(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Who keeps what: `xs.append(x)`, `s += x`, `s = s + x`, and the same for each of a list."""
    if isinstance(node, ast.Call) and called_name(node) == "append" and isinstance(node.func, ast.Attribute):
        holder = dotted(node.func.value)
        return (holder, node.args[0]) if holder and len(node.args) == 1 else None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        holder = dotted(node.target)
        return (holder, node.value) if holder else None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        holder = dotted(node.targets[0])
        if holder and dotted(node.value.left) == holder:
            return holder, node.value.right
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.ListComp) and len(node.value.generators) == 1:
        return _added_up(dotted(node.targets[0]), node.value)
    return None


def _added_up(holder: str, sums: ast.ListComp) -> tuple[str, ast.expr] | None:
    """`totals = [total + loss for total, loss in zip(totals, losses)]`."""
    over = sums.generators[0].iter
    adds = isinstance(sums.elt, ast.BinOp) and isinstance(sums.elt.op, ast.Add)
    if not adds or not isinstance(over, ast.Call) or called_name(over) != "zip" or len(over.args) != 2:
        return None
    others = [one for one in over.args if dotted(one) != holder]
    return (holder, others[0]) if holder and len(others) == 1 else None


def _backward_of(region: Region) -> set[str]:
    """Names that backward is called on; `scaler.scale(loss).backward()` and `accelerator.backward(loss)` too."""
    found = set()
    for turn in region.turns():
        call = turn.node
        if isinstance(call, ast.Call) and called_name(call) == "backward" and isinstance(call.func, ast.Attribute):
            of: ast.expr = call.func.value
            if isinstance(of, ast.Call) and of.args:
                of = of.args[0]
            found |= {name for one in (of, *call.args) if (name := dotted(one))}
    return found


def _begun_in(region: Region) -> set[str]:
    """Names that each turn begins anew, empties, or hands on."""
    found: set[str] = set()
    for statement in region.body:
        for one in within(statement):
            if isinstance(one, ast.Assign) and not _keeps(one):
                for target in one.targets:
                    found |= bound_names(target) | ({dotted(target)} if dotted(target) else set())
            elif isinstance(one, ast.Call):
                if isinstance(one.func, ast.Attribute) and one.func.attr in (
                    "clear",
                    "pop",
                    "popleft",
                    "backward",
                    "zero_",
                ):
                    found.add(dotted(one.func.value))
                elif called_name(one) in ("sum", "stack", "cat", "backward"):
                    found |= {dotted(given) for given in one.args if dotted(given)}
            elif isinstance(one, ast.Delete):
                found |= {dotted(target) for target in one.targets}
    return found
