"""Is what a training step copies still as its loader gave it? What the step makes, converts or cuts no loader pins."""

from __future__ import annotations

import ast
import re

from flatout.source.module import Function, own_nodes
from flatout.source.moves import moves_to
from flatout.source.naming import full_name
from flatout.source.nodes import bound_names, called_name, dotted, names_in, root_name
from flatout.source.project import Project

# Show the same memory another way, or hand on what they are given.
_VIEWING = {
    "squeeze", "unsqueeze", "view", "flatten", "contiguous", "detach", "requires_grad_", "pin_memory", "get", "pop",
    "items", "values", "to_dict", "data", "Variable", "next", "iter", "enumerate", "tqdm", "list", "tuple", "dict",
    "zip", "islice", "track", "reshape",
}  # fmt: skip
# Give a new tensor, or one whose rows do not lie together: that is copied by way of new memory.
_CHANGING = {
    "float", "long", "int", "half", "bool", "double", "type", "type_as", "permute", "transpose", "t", "clone", "repeat",
    "expand", "narrow", "flip", "roll", "sum", "mean", "abs", "clamp", "sort", "gather", "sample",
}  # fmt: skip
_FETCHING = re.compile(r"next|batch|fetch|load|iter|queue|prefetch|unpack|collate|data", re.I)
_DEEPEST = 4


def is_as_loaded(node: ast.expr, function: Function, project: Project) -> bool:
    """False where the step has certainly, or as likely as not, made it itself."""
    return not _Made(function, project, node.lineno).is_made(node, 0, frozenset())


class _Made:
    """What one function makes before a line."""

    def __init__(self, function: Function, project: Project, before: int) -> None:
        self.function = function
        self.project = project
        self.before = before

    def is_made(self, node: ast.expr, depth: int, seen: frozenset[str]) -> bool:
        if depth > _DEEPEST:
            return False
        if isinstance(node, ast.Name):
            return node.id not in seen and self._is_named(node.id, depth, seen | {node.id})
        if isinstance(node, ast.Call):
            return self._is_called(node, depth, seen)
        if isinstance(node, ast.Subscript):
            return _leaves_gaps(node) or self.is_made(node.value, depth + 1, seen)
        if isinstance(node, ast.Attribute):
            return self.is_made(node.value, depth + 1, seen)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.is_made(node.elt, depth + 1, seen)
        if isinstance(node, ast.IfExp):
            return self.is_made(node.body, depth + 1, seen) or self.is_made(node.orelse, depth + 1, seen)
        return isinstance(node, ast.BinOp | ast.Compare)

    def _is_named(self, name: str, depth: int, seen: frozenset[str]) -> bool:
        # `x = x.to(device)` is the copy itself.
        since, over = self._gone_over(name)
        known = self.function.bindings.get(name, ())
        values = [one for one in known if since <= one.lineno < self.before and not _moves(one)]
        return any(self.is_made(one, depth + 1, seen) for one in (*values, *over))

    def _gone_over(self, name: str) -> tuple[int, list[ast.expr]]:
        """What the loop or comprehension goes over that gives the name its value here, and since which line."""
        found: tuple[int, list[ast.expr]] = (0, [])
        for one in own_nodes(self.function):
            if not isinstance(one, ast.For | ast.AsyncFor | ast.comprehension) or name not in bound_names(one.target):
                continue
            until = one.end_lineno or 0 if isinstance(one, ast.stmt) else self.before
            if one.target.lineno <= self.before <= until:
                found = (one.target.lineno, [_counterpart(name, one.target, one.iter)])
        return found

    def _is_called(self, call: ast.Call, depth: int, seen: frozenset[str]) -> bool:
        name, func = called_name(call), call.func
        if name in _VIEWING or moves_to(call) is not None:
            of = func.value if isinstance(func, ast.Attribute) and not dotted(func.value).startswith("torch") else None
            of = of if of is not None and name not in ("next", "Variable") else call.args[0] if call.args else None
            return of is not None and self.is_made(of, depth + 1, seen)
        if name in _CHANGING:
            return True
        if _FETCHING.search(dotted(func)) or not (call.args or call.keywords):
            return False
        if full_name(func, self.function.module).split(".")[0] in ("torch", "np", "numpy") or name.endswith("Tensor"):
            return True
        if name[:1].isupper():
            return False  # an object that goes over a loader, and shows how far it is
        callees = self.project.resolve(call, self.function)
        # Of a function of the project: does it compute, or only sort out what it is given?
        return not callees or any(_computes(one) for one in callees)


def _computes(function: Function) -> bool:
    plain = function.definition
    returned = [one.value for one in own_nodes(function) if isinstance(one, ast.Return) and one.value is not None]
    made = {name for value in returned for name in names_in(value)}
    values = [*returned, *(value for name in made for value in function.bindings.get(name, ()))]
    if plain is None:
        return False
    if any(isinstance(one, ast.Subscript) and _leaves_gaps(one) for one in own_nodes(function)):
        return True
    return any(
        isinstance(one, ast.BinOp)
        or (isinstance(one, ast.Call) and (root_name(one.func) in ("torch", "np") or called_name(one) in _CHANGING))
        for value in values
        for one in ast.walk(value)
    )


def _leaves_gaps(node: ast.Subscript) -> bool:
    """`x[:, 0]` does; `x[0]`, `x[:8]` and `batch["x"]` do not."""
    return isinstance(node.slice, ast.Tuple) and any(isinstance(one, ast.Slice) for one in node.slice.elts)


def _moves(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Call) and moves_to(one) == "device" for one in ast.walk(node))


def _counterpart(name: str, target: ast.expr, over: ast.expr) -> ast.expr:
    """Which of `zip(views, encoders)` the name goes over."""
    if isinstance(target, ast.Tuple) and isinstance(over, ast.Call):
        if called_name(over) == "zip" and len(target.elts) == len(over.args):
            return next(
                (part for one, part in zip(target.elts, over.args, strict=True) if name in bound_names(one)), over
            )
        if called_name(over) == "enumerate" and over.args and len(target.elts) == 2:
            return _counterpart(name, target.elts[1], over.args[0])
    return over
