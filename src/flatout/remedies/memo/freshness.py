"""Which local names of a function hold memory that the function has made itself: only that may it write into.

By the syntax, and regardless of order: a name counts by all values it is ever given. A "tensor" is fresh with all its
views, a "container" is, but not what lies in it, and "new" is what an operator gives: a number, a tensor, a list.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from .known_names import MAKES_CONTAINER, MAKES_NUMBER, MAKES_TENSOR, MAKES_TENSOR_AS_METHOD, METHODS

TENSOR, CONTAINER, NEW = "tensor", "container", "new"
# Of a name whose values are still to be looked at: it holds nothing against the others.
_OPEN = "open"
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp)

# The full name of a function by its dotted path: "torch.zeros", "builtins.int"; None where it is neither.
Origin = Callable[[tuple[str, ...]], str | None]


class Freshness:
    """Of the locals of one function."""

    def __init__(self, function: ast.FunctionDef, origin: Origin) -> None:
        self._origin = origin
        # None stands for a value that is not known.
        self._values: dict[str, list[ast.expr | None]] = {}
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self.parameters = tuple(one.arg for one in every if one is not None)
        for name in self.parameters:
            self._bind_name(name, None)
        for statement in function.body:
            for node in _outside_comprehensions(statement):
                self._bind_from(node)
        self._kinds: dict[str, str | None] = dict.fromkeys(self._values, _OPEN)
        while self._settles():
            pass
        # What is made of nothing but itself is never there.
        self._kinds = {name: None if kind == _OPEN else kind for name, kind in self._kinds.items()}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def count(self, name: str) -> int:
        """How often a local name is given a value; a parameter once to begin with."""
        return len(self._values.get(name, ()))

    def kind(self, node: ast.expr) -> str | None:
        """What an expression's value is; None where it may be somebody else's memory."""
        if isinstance(node, ast.Name):
            return self._kinds.get(node.id)
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Compare):
            return NEW
        if isinstance(node, ast.UnaryOp):
            return None if isinstance(node.op, ast.UAdd) else NEW  # +x may be x itself
        if isinstance(node, _DISPLAYS):
            return CONTAINER
        if isinstance(node, ast.Call):
            return self._kind_of_call(node)
        if isinstance(node, ast.Subscript | ast.Attribute):
            return self._part_of(node.value)
        if isinstance(node, ast.IfExp):
            return _either(self.kind(node.body), self.kind(node.orelse))
        return None

    def _settles(self) -> bool:
        """One more look at all names; whether one of them turned out to be less than was thought."""
        before = dict(self._kinds)
        for name, values in self._values.items():
            found: str | None = _OPEN
            for value in values:
                found = _either(found, self.kind(value) if value is not None else None)
            self._kinds[name] = found
        return before != self._kinds

    def _part_of(self, whole: ast.expr) -> str | None:
        kind = self.kind(whole)
        return kind if kind in (TENSOR, _OPEN) else None

    def _kind_of_call(self, node: ast.Call) -> str | None:
        path = path_of(node.func)
        if path is not None and path[0] not in self._values:
            module, _, name = (self._origin(path) or "").rpartition(".")
            if module == "builtins":
                return CONTAINER if name in MAKES_CONTAINER else NEW if name in MAKES_NUMBER else None
            return TENSOR if module in ("torch", "numpy") and name in MAKES_TENSOR else None
        if not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr in MAKES_TENSOR_AS_METHOD:
            return TENSOR
        # A view of fresh memory, or memory of its own.
        return self._part_of(node.func.value) if node.func.attr in METHODS else None

    def _bind_from(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value is not None):
            self._bind(node.target, node.value)
        elif isinstance(node, ast.For):
            # A turn of `range` is a number.
            self._bind(node.target, ast.Constant(0) if self._is_range(node.iter) else None)
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, None)
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            self._bind_name(node.name, None)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            values: Iterable[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                values = value.elts
            for one, its in zip(target.elts, values, strict=True):
                self._bind(one, its)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, None)

    def _bind_name(self, name: str, value: ast.expr | None) -> None:
        self._values.setdefault(name, []).append(value)

    def _is_range(self, node: ast.expr) -> bool:
        path = path_of(node.func) if isinstance(node, ast.Call) else None
        return path is not None and self._origin(path) == "builtins.range"


def path_of(node: ast.expr) -> tuple[str, ...] | None:
    """`a.b.c` as its names; None for what is no plain chain of them."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return (node.id, *names) if isinstance(node, ast.Name) else None


def _either(one: str | None, other: str | None) -> str | None:
    """What is sure of a value that may be either."""
    if _OPEN in (one, other):
        return other if one == _OPEN else one
    if one is None or other is None or one == other:
        return one if one == other else None
    return NEW


def _outside_comprehensions(node: ast.AST) -> Iterator[ast.AST]:
    """The names of a comprehension are its own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.comprehension) and child is node.target):
            yield from _outside_comprehensions(child)
